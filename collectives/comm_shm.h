/* segment.h: the control segment of a communicator, a memory file that all its ranks map.
 *
 * One page for all, then for each member: what it is, the calls it published, small slots for data,
 * and a mailbox for each pair. The file is as long as its largest use and sparse: what is not
 * touched costs nothing.
 *
 * Phases. Members pass one phase after another together: `arrivals` counts them, and who is the
 * last one of phase p stores p in `phase`. Nobody arrives at p+1 before it saw p complete. A
 * collective takes one or two phases; what a member published for call k is read by others from the
 * first phase of k on, and not any more when all have arrived in call k+1: so two buffers suffice,
 * used in turn, and need no other synchronization.
 */
#ifndef OPENREG_COLLECTIVES_SEGMENT_H
#define OPENREG_COLLECTIVES_SEGMENT_H

#include "collectives/collectives.h"
#include "collectives/doorbell.h"

#include <stdalign.h>

#pragma GCC visibility push(hidden)

enum {
  OPENREG_LINE = 64,                 /* of a processor's cache */
  OPENREG_SLOT_BYTES = 16 << 10,     /* inputs of a collective up to this go through a slot */
  OPENREG_LETTERS = 4,               /* that a mailbox holds */
  OPENREG_LETTER_BYTES = 4 << 10,    /* messages up to this go through the mailbox */
  OPENREG_END_SENTENCE_BYTES = 1000, /* why a communicator was ended */
};

enum openreg_member_state {
  OPENREG_MEMBER_ABSENT,
  OPENREG_MEMBER_JOINING, /* fills in what it is */
  OPENREG_MEMBER_JOINED,
  OPENREG_MEMBER_LEFT,
  OPENREG_MEMBER_DEAD, /* without having left; seen by a watchdog */
};

struct openreg_member {
  alignas(OPENREG_LINE) _Atomic uint32_t state;
  int pid;
  uint64_t started; /* see liveness.h */
  unsigned char uuid[OPENREG_UUID_BYTES];
  openreg_ipc_handle arena;

  alignas(OPENREG_LINE) struct openreg_doorbell letters; /* something changed in its mailboxes */

  alignas(OPENREG_LINE) _Atomic uint64_t arrived; /* the last phase */
  _Atomic uint32_t moving; /* threads that may write to another member's memory, or read it */
};

/* What must be the same of a call on all ranks. */
struct openreg_signature {
  uint32_t kind, dtype;
  uint32_t reduction, root; /* 0 where there is none */
  uint64_t layout;          /* of counts that must agree: their digest */
  uint64_t elements;        /* for sentences, and where two ranks must agree by themselves */
};

struct openreg_published {
  alignas(OPENREG_LINE) struct openreg_signature signature;
  bool is_direct; /* the inputs are in the arena, else in the slot; then others touch memory, and
                     the call has a second phase */
  uint64_t input_offset, output_offset; /* of the first part, in arena or slot; in the arena */
  double factor;
};

/* Of kinds with a part for each rank. */
struct openreg_published_part {
  uint64_t input_offset; /* as above */
  uint64_t input_count, output_count;
};

struct openreg_letter {
  uint32_t dtype;
  bool is_direct; /* in the sender's arena, else in the mailbox */
  uint64_t offset;
  uint64_t count;
};

/* From one rank to another. Letters are numbered from 0 on; number i lies at i % OPENREG_LETTERS.
 */
struct openreg_mailbox {
  alignas(OPENREG_LINE) _Atomic uint64_t sent;  /* how many; the sender's to write */
  alignas(OPENREG_LINE) _Atomic uint64_t taken; /* the receiver's */
  alignas(OPENREG_LINE) struct openreg_letter letters[OPENREG_LETTERS];
  alignas(OPENREG_LINE) unsigned char data[OPENREG_LETTERS][OPENREG_LETTER_BYTES];
};

enum openreg_end { OPENREG_NOT_ENDED, OPENREG_END_BEGINS, OPENREG_ENDED };

struct openreg_segment {
  uint64_t magic, nonce;
  uint64_t bytes;
  uint32_t size;

  alignas(OPENREG_LINE) _Atomic uint32_t end; /* written once, seldom: all look at it often */
  _Atomic uint32_t left;                      /* how many members have left */
  _Atomic uint32_t joined, mapped;            /* how many have joined, and mapped all arenas */
  char sentence[OPENREG_END_SENTENCE_BYTES];  /* valid when ENDED */

  alignas(OPENREG_LINE) _Atomic uint64_t arrivals;
  alignas(OPENREG_LINE) _Atomic uint64_t phase;
  struct openreg_doorbell bell; /* of phases, joining, leaving and ends */

  alignas(OPENREG_LINE) struct openreg_member members[];
};

/* Where things lie. `number` of a call: its parity chooses the buffer. */
struct openreg_published *openreg_segment_call(struct openreg_segment *segment, int rank,
                                               uint64_t number);
struct openreg_published_part *openreg_segment_parts(struct openreg_segment *segment, int rank,
                                                     uint64_t number);
unsigned char *openreg_segment_slot(struct openreg_segment *segment, int rank, uint64_t number);
struct openreg_mailbox *openreg_segment_mailbox(struct openreg_segment *segment, int source,
                                                int destination);

/* What an id says. */
struct openreg_segment_name {
  uint64_t magic;
  int32_t pid, file; /* who holds it open, as which descriptor */
  uint64_t inode, nonce;
  uint32_t size;
};

/* False for bytes that are no id. */
bool openreg_segment_name_read(const openreg_comm_id *id, struct openreg_segment_name *name);

/* Opens the segment and maps it. Errors: INVALID_ARGUMENT when it cannot be reached, SYSTEM. */
openreg_status openreg_segment_map(const struct openreg_segment_name *name,
                                   struct openreg_segment **segment);
void openreg_segment_unmap(struct openreg_segment *segment);

#pragma GCC visibility pop
#endif
