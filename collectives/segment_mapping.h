/* attachment.h: a control segment as this process has it mapped, once for all its ranks; how it is
 * ended and left.
 */
#ifndef OPENREG_COLLECTIVES_ATTACHMENT_H
#define OPENREG_COLLECTIVES_ATTACHMENT_H

#include "collectives/comm_shm.h"

#pragma GCC visibility push(hidden)

typedef struct openreg_attachment {
  struct openreg_segment *segment;
  uint64_t nonce;
  int size;
  int looks;                          /* before sleeping: none without a core for each rank */
  char name[OPENREG_COMM_NAME_BYTES]; /* of the first rank of this process that joined */
  int *rank_names;                    /* NULL: as they are counted */

  /* Guarded by the lock of attachment.c. */
  unsigned users;              /* ranks of this process */
  bool own[OPENREG_MAX_RANKS]; /* which they are */
  bool is_watched;             /* by the watchdog */
  struct openreg_attachment *next;
} openreg_attachment;

/* Maps the segment, or counts one more user. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_attachment_get(const struct openreg_segment_name *name,
                                      const openreg_comm_options *options,
                                      openreg_attachment **attachment);
void openreg_attachment_put(openreg_attachment *attachment);

/* Takes the place of a rank, false when it is taken; and leaves it, which wakes all. */
bool openreg_attachment_take_place(openreg_attachment *attachment, int rank);
void openreg_attachment_leave(openreg_attachment *attachment, int rank);

/* Ends the communicator for all, with a sentence, unless it was ended. */
void openreg_attachment_end(openreg_attachment *attachment, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Why it was ended. For what was ended. */
const char *openreg_attachment_sentence(const openreg_attachment *attachment);

/* Rings for all who sleep in the segment. */
void openreg_attachment_ring_all(const openreg_attachment *attachment);

static inline bool openreg_attachment_has_ended(const openreg_attachment *attachment) {
  return atomic_load(&attachment->segment->end) != OPENREG_NOT_ENDED;
}

static inline enum openreg_member_state
openreg_attachment_state_of(const openreg_attachment *attachment, int rank) {
  return (enum openreg_member_state)atomic_load(&attachment->segment->members[rank].state);
}

/* ---- watchdog.c ------------------------------------------------------------------------------ */

/* Has the process's watchdog look after the other processes of the segment, when there are any: it
 * ends the communicator when one of them dies. All must have joined. Errors: OUT_OF_MEMORY, SYSTEM.
 */
openreg_status openreg_watchdog_add_locked(openreg_attachment *attachment);
void openreg_watchdog_remove_locked(openreg_attachment *attachment);

/* In a forked child: closes what the thread waits with. */
void openreg_watchdog_abandon(void);

/* The lock, and all that are watched among the attachments. */
openreg_status openreg_attachments_lock(void);
void openreg_attachments_unlock(void);
openreg_attachment *openreg_attachments_first(void);

#pragma GCC visibility pop
#endif
