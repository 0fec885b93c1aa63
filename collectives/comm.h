/* comm.h: a rank of a communicator, internal to this layer.
 *
 *     id.c               creates control segments    call.c        checks and publishes a call
 *     comm_shm.c         layout of a segment         match.c       do all ranks call the same?
 *     segment_mapping.c  mapping one, aborting it    barrier.c     waiting for all ranks
 *     watchdog.c         detects dead processes      movement.c    moves the data of a collective
 *     comm.c             joining and leaving         copy.c        copies between arenas
 *     message.c          sends and receives          error_text.c  ranks and calls in messages
 *     traits.c           tables of dtypes, reductions and collectives
 */
#ifndef OPENREG_COLLECTIVES_COMM_H
#define OPENREG_COLLECTIVES_COMM_H

#include "collectives/segment_mapping.h"

#pragma GCC visibility push(hidden)

/* One side of a call: its inputs, or its outputs. */
struct openreg_call_side {
  const openreg_comm_buffer *buffers;
  int count;
  bool is_per_rank;   /* each rank has a chunk */
  bool is_split;      /* the chunks lie in one buffer, one after the other */
  size_t chunk_count; /* then: elements of each chunk */
};

/* The collective that a rank has begun. What depends on the arguments alone is computed once, when
 * it begins. */
struct openreg_call {
  openreg_collective collective;
  const openreg_collective_traits *traits;
  size_t element_bytes, input_bytes;
  struct openreg_call_side inputs, outputs;
  struct openreg_signature signature;
  uint64_t number;
  int64_t deadline_ns;
  bool is_running;
  bool is_direct; /* some rank's inputs are in its arena, so the call has a second barrier round */
  bool has_moved; /* this rank has moved its data and waits for the others in the second round */
};

struct openreg_comm {
  openreg_segment_mapping *mapping;
  struct openreg_comm_shm *shm; /* that of `mapping` */
  int size, rank, device;
  unsigned char *arena; /* device view of this rank's arena */
  size_t arena_bytes;
  openreg_peer_arena *arenas; /* of all ranks */
  uint64_t number;            /* of the last collective that this rank began */
  uint64_t round;             /* the last barrier round that this rank arrived in */
  struct openreg_call call;
  int left_rank; /* a rank that left while a collective waited for it; -1: none */
};

/* The address in this process of another rank's device memory, by its offset in the arena. */
static inline void *openreg_comm_memory(const openreg_comm *comm, int rank, uint64_t offset) {
  return (unsigned char *)comm->arenas[rank].base + offset;
}

/* The offset of one of this rank's buffers in its arena. 0 for an empty buffer, whose address may
 * be anything. */
static inline uint64_t openreg_comm_offset(const openreg_comm *comm,
                                           const openreg_comm_buffer *buffer) {
  return buffer->count == 0 ? 0 : (uint64_t)((const unsigned char *)buffer->address - comm->arena);
}

/* Errors: BAD_FORK in a forked child; COMMUNICATION_FAILURE when the communicator was aborted. */
openreg_status openreg_comm_require_usable(const openreg_comm *comm);

/* ---- call.c ---------------------------------------------------------------------------------- */

/* The chunk of a side that is for `rank`, or from it. The side must be per rank. */
openreg_comm_buffer openreg_chunk_of(const struct openreg_call *call,
                                     const struct openreg_call_side *side, int rank);

/* Checks that a buffer lies in the memory of this rank's device. Errors: INVALID_ARGUMENT when it
 * is larger than that memory, INVALID_ADDRESS. */
openreg_status openreg_comm_check_buffer(const openreg_comm *comm,
                                         const openreg_comm_buffer *buffer, openreg_dtype dtype);

/* ---- match.c --------------------------------------------------------------------------------- */

/* Returns whether the published calls of all ranks match. Aborts the communicator if they do not.
 */
bool openreg_calls_match(openreg_comm *comm);

/* ---- barrier.c ------------------------------------------------------------------------------- */

/* Arrives in the next round. */
void openreg_barrier_arrive(openreg_comm *comm);

/* Waits until all ranks have arrived in the round, or the call's deadline passes. Errors: NOT_READY
 * after `patience_ns`, COMMUNICATION_FAILURE. */
openreg_status openreg_barrier_wait(openreg_comm *comm, uint64_t patience_ns);

/* Between these two calls this rank may access memory of other ranks, and ranks whose call fails
 * wait for it. Begin returns false when the communicator was aborted. A long transfer checks for an
 * abort between tiles. */
bool openreg_transfer_begin(openreg_comm *comm);
void openreg_transfer_end(openreg_comm *comm);

/* For an aborted communicator: waits until no rank accesses this rank's memory, for at most one
 * second, and fails with the abort's message. */
openreg_status openreg_comm_fail_aborted(openreg_comm *comm);

/* Fails because `rank`, which the call waits for, has left. */
openreg_status openreg_comm_fail_left(openreg_comm *comm, int rank);

/* ---- movement.c ------------------------------------------------------------------------------ */

/* Moves this rank's share of the data, after all ranks have published the call. Returns false when
 * an abort of the communicator stopped it. */
bool openreg_call_move_data(openreg_comm *comm);

/* ---- copy.c ---------------------------------------------------------------------------------- */

/* Copies tile by tile. Returns false when the communicator was aborted meanwhile. */
bool openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                        size_t bytes);

#pragma GCC visibility pop
#endif
