/* comm_shm.h: the control segment of a communicator, a memory file that all its ranks map.
 *
 * The segment has one page for all ranks. Then it has for each rank: its member record, the calls
 * it published, buffers for small inputs, and a mailbox for each peer. The file is sparse and sized
 * for the largest use; pages that nobody touches cost nothing.
 *
 * Barrier rounds. All members pass one round of the barrier after another. `arrivals` counts the
 * arrivals in all rounds: round r is complete when each member has arrived r times. No member
 * arrives in round r+1 before it has seen round r complete. A collective takes one or two rounds.
 * Others read what a member published for call k from the first round of call k on, and no longer
 * once all have arrived in call k+1. So two buffers, used in turn, suffice without further
 * synchronization.
 */
#ifndef OPENREG_COLLECTIVES_COMM_SHM_H
#define OPENREG_COLLECTIVES_COMM_SHM_H

#include "collectives/collectives.h"
#include "collectives/doorbell.h"

#include <stdalign.h>

#pragma GCC visibility push(hidden)

enum {
  OPENREG_CACHE_LINE_BYTES = 64,
  OPENREG_INLINE_INPUT_BYTES = 16 << 10,  /* inputs up to this size are copied into the segment */
  OPENREG_MAILBOX_SLOTS = 4,              /* messages that a mailbox holds */
  OPENREG_INLINE_MESSAGE_BYTES = 4 << 10, /* messages up to this size are copied into the mailbox */
  OPENREG_ABORT_MESSAGE_BYTES = 1000,     /* the reason for an abort, with the final NUL */
};

enum openreg_member_state {
  OPENREG_MEMBER_ABSENT,
  OPENREG_MEMBER_JOINING, /* is writing its record */
  OPENREG_MEMBER_JOINED,
  OPENREG_MEMBER_LEFT,
  OPENREG_MEMBER_DEAD, /* died without leaving; a watchdog found that */
};

struct openreg_member {
  alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint32_t state;
  int pid;
  uint64_t started; /* openreg_process_started() */
  unsigned char uuid[OPENREG_UUID_BYTES];
  openreg_ipc_handle arena;

  /* Rings when something changes in one of the member's mailboxes. */
  alignas(OPENREG_CACHE_LINE_BYTES) struct openreg_doorbell mailbox_bell;

  alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t arrived_round; /* the last one */
  _Atomic uint32_t active_transfers; /* threads that may access another member's memory */
};

/* The properties of a call that must be equal on all ranks. */
struct openreg_signature {
  uint32_t kind, dtype;
  uint32_t reduction, root; /* 0 where the collective has no such argument */
  uint64_t layout;          /* hash of the lengths that must agree */
  uint64_t elements;        /* for messages, and for lengths that must agree pairwise */
};

struct openreg_published_call {
  alignas(OPENREG_CACHE_LINE_BYTES) struct openreg_signature signature;
  /* True: the inputs are in the member's arena, so others access its memory and the call has a
   * second barrier round. False: the inputs were copied into the segment. */
  bool is_direct;
  uint64_t input_offset;  /* of the first input: in the arena, or in the copied inputs */
  uint64_t output_offset; /* of the first output in the arena */
  double factor;
};

/* For collectives with one buffer per rank: the chunk for one rank, or from it. */
struct openreg_published_chunk {
  uint64_t input_offset; /* as above */
  uint64_t input_count, output_count;
};

struct openreg_message_slot {
  uint32_t dtype;
  bool is_direct; /* the data is in the sender's arena; otherwise in the mailbox */
  uint64_t offset;
  uint64_t count;
};

/* Messages from one rank to another. Messages are numbered from 0; message i is in slot
 * i % OPENREG_MAILBOX_SLOTS. */
struct openreg_mailbox {
  alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t sent;  /* count; written by the sender */
  alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t taken; /* count; written by the receiver */
  alignas(OPENREG_CACHE_LINE_BYTES) struct openreg_message_slot slots[OPENREG_MAILBOX_SLOTS];
  alignas(OPENREG_CACHE_LINE_BYTES) unsigned char data[OPENREG_MAILBOX_SLOTS]
                                                      [OPENREG_INLINE_MESSAGE_BYTES];
};

/* Where the parts of a segment begin, in bytes from its start. A function of the number of ranks.
 */
struct openreg_comm_shm_layout {
  uint64_t calls, chunks, inline_inputs, mailboxes, end;
};

enum openreg_abort_state { OPENREG_NOT_ABORTED, OPENREG_ABORTING, OPENREG_ABORTED };

struct openreg_comm_shm {
  uint64_t magic, nonce;
  struct openreg_comm_shm_layout layout;
  uint32_t size; /* ranks */

  /* Written once at most, and read often. */
  alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint32_t abort_state;
  _Atomic uint32_t left_count;                     /* members that have left */
  _Atomic uint32_t joined_count, mapped_count;     /* that have joined; that mapped all arenas */
  char abort_message[OPENREG_ABORT_MESSAGE_BYTES]; /* valid when ABORTED */

  alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t arrivals;
  struct openreg_doorbell bell; /* rings for rounds, joining, leaving and aborts */

  alignas(OPENREG_CACHE_LINE_BYTES) struct openreg_member members[];
};

/* The parts of a segment. The parity of a call's `number` selects one of two buffers. */
struct openreg_published_call *openreg_comm_shm_call(struct openreg_comm_shm *shm, int rank,
                                                     uint64_t number);
struct openreg_published_chunk *openreg_comm_shm_chunks(struct openreg_comm_shm *shm, int rank,
                                                        uint64_t number);
unsigned char *openreg_comm_shm_inline_input(struct openreg_comm_shm *shm, int rank,
                                             uint64_t number);
struct openreg_mailbox *openreg_comm_shm_mailbox(struct openreg_comm_shm *shm, int source,
                                                 int destination);

/* The content of an id. */
struct openreg_comm_shm_locator {
  uint64_t magic;
  int32_t pid, file; /* the process that holds the file open, and its descriptor */
  uint64_t inode, nonce;
  uint32_t size; /* ranks */
};

/* Returns false for bytes that are not an id. */
bool openreg_comm_shm_locator_decode(const openreg_comm_id *id,
                                     struct openreg_comm_shm_locator *locator);

/* Opens and maps the segment; the caller unmaps it. Errors: INVALID_ARGUMENT when the segment
 * cannot be reached, SYSTEM. */
openreg_status openreg_comm_shm_map(const struct openreg_comm_shm_locator *locator,
                                    struct openreg_comm_shm **shm);
void openreg_comm_shm_unmap(struct openreg_comm_shm *shm);

#pragma GCC visibility pop
#endif
