/* segment_mapping.h: a control segment as this process has mapped it.
 *
 * All ranks of the process share one mapping. This file also aborts a communicator and marks ranks
 * as having left.
 */
#ifndef OPENREG_COLLECTIVES_SEGMENT_MAPPING_H
#define OPENREG_COLLECTIVES_SEGMENT_MAPPING_H

#include "collectives/comm_shm.h"

#pragma GCC visibility push(hidden)

typedef struct openreg_segment_mapping {
  struct openreg_comm_shm *shm;
  uint64_t nonce;
  int size;
  int spins;                          /* before sleeping; 0 unless each rank has a core */
  char name[OPENREG_COMM_NAME_BYTES]; /* from the first rank of this process that joined */
  int *rank_names;                    /* numbers to show for ranks; NULL: 0 to size - 1 */

  /* Guarded by the lock of segment_mapping.c. */
  unsigned users;                        /* ranks of this process */
  bool is_local_rank[OPENREG_MAX_RANKS]; /* whether a rank is one of them */
  bool is_watched;                       /* by the watchdog */
  struct openreg_segment_mapping *next;
} openreg_segment_mapping;

/* Maps the segment, or adds a user to its mapping. Each user calls openreg_mapping_put once.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_mapping_get(const struct openreg_comm_shm_locator *locator,
                                   const openreg_comm_options *options,
                                   openreg_segment_mapping **mapping);
void openreg_mapping_put(openreg_segment_mapping *mapping);

/* Claims a rank; returns false when it is taken. Release marks it as having left and wakes all. */
bool openreg_mapping_claim_rank(openreg_segment_mapping *mapping, int rank);
void openreg_mapping_release_rank(openreg_segment_mapping *mapping, int rank);

/* Aborts the communicator for all ranks with a message, unless it was aborted before. */
void openreg_mapping_abort(openreg_segment_mapping *mapping, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The message of an aborted communicator; valid as long as the mapping. */
const char *openreg_mapping_abort_message(const openreg_segment_mapping *mapping);

/* Wakes all threads that sleep in the segment. */
void openreg_mapping_wake_all(const openreg_segment_mapping *mapping);

static inline bool openreg_mapping_is_aborted(const openreg_segment_mapping *mapping) {
  return atomic_load(&mapping->shm->abort_state) != OPENREG_NOT_ABORTED;
}

static inline enum openreg_member_state
openreg_mapping_member_state(const openreg_segment_mapping *mapping, int rank) {
  return (enum openreg_member_state)atomic_load(&mapping->shm->members[rank].state);
}

/* ---- watchdog.c ------------------------------------------------------------------------------ */

/* Makes this process's watchdog watch the other processes of the segment, if there are any. The
 * watchdog aborts the communicator when one of them dies. All ranks must have joined. Errors:
 * OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_watchdog_add_locked(openreg_segment_mapping *mapping);
void openreg_watchdog_remove_locked(openreg_segment_mapping *mapping);

/* In a forked child, which has no watchdog thread: closes its descriptors. */
void openreg_watchdog_close_after_fork(void);

/* The lock of segment_mapping.c, and its list of mappings. */
openreg_status openreg_mappings_lock(void);
void openreg_mappings_unlock(void);
openreg_segment_mapping *openreg_mappings_first(void);

#pragma GCC visibility pop
#endif
