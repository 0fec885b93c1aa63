/* comm.h: a rank of a communicator, as the files of this layer have it.
 *
 *     id.c          making control segments       call.c       what a rank asks for, published
 *     segment.c     where things lie in one       match.c      whether all ask for the same
 *     attachment.c  having one mapped, its end    phase.c      waiting for all
 *     watchdog.c    who has died                  movement.c   data, once all are there
 *     comm.c        joining, leaving              copy.c       copying between arenas
 *     message.c     sends and receives            sentences.c  names for people
 */
#ifndef OPENREG_COLLECTIVES_COMM_H
#define OPENREG_COLLECTIVES_COMM_H

#include "collectives/segment_mapping.h"

#pragma GCC visibility push(hidden)

/* The collective that a rank has begun. */
struct openreg_call {
  openreg_collective what;
  struct openreg_signature signature;
  uint64_t number;
  int64_t deadline_ns;
  bool is_running;
  bool is_direct; /* any rank's inputs are in its arena: then the call has a second phase */
  bool has_moved; /* waits for others to have moved theirs, too */
};

struct openreg_comm {
  openreg_attachment *attachment;
  struct openreg_segment *segment; /* the attachment's */
  int size, rank, device;
  unsigned char *arena; /* device view of this rank's */
  size_t arena_bytes;
  openreg_peer_arena *arenas; /* of all */
  uint64_t number;            /* of the last collective that was begun */
  uint64_t phase;             /* the last phase that this rank arrived at */
  struct openreg_call call;
  int left_rank; /* that a collective waited for in vain; -1 */
};

/* The device memory of any rank, by its offset in the arena. */
static inline void *openreg_comm_memory(const openreg_comm *comm, int rank, uint64_t offset) {
  return (unsigned char *)comm->arenas[rank].base + offset;
}

/* Of a part of this rank's; 0 without elements, for then its address may be anything. */
static inline uint64_t openreg_comm_offset(const openreg_comm *comm, const openreg_part *part) {
  return part->count == 0 ? 0 : (uint64_t)((const unsigned char *)part->address - comm->arena);
}

/* Errors: BAD_FORK, and COMMUNICATION_FAILURE when it was ended. */
openreg_status openreg_comm_require(const openreg_comm *comm);

/* ---- call.c ---------------------------------------------------------------------------------- */

/* One side's part for or from a rank: of a list, or of one part that holds them all. */
openreg_part openreg_part_of(const openreg_part *parts, int count, int size, openreg_dtype dtype,
                             int rank);

/* Whether a range is of this rank's device. Errors: INVALID_ARGUMENT when its length is more than
 * can be, INVALID_ADDRESS. */
openreg_status openreg_comm_check_part(const openreg_comm *comm, const openreg_part *part,
                                       openreg_dtype dtype);

/* ---- match.c --------------------------------------------------------------------------------- */

/* When all have published their calls: whether they fit; ends the communicator otherwise. */
bool openreg_calls_match(openreg_comm *comm);

/* ---- phase.c --------------------------------------------------------------------------------- */

void openreg_phase_arrive(openreg_comm *comm);

/* Waits for the others until the deadline of the call. Errors: NOT_READY when `patience_ns` have
 * passed, COMMUNICATION_FAILURE. */
openreg_status openreg_phase_await(openreg_comm *comm, uint64_t patience_ns);

/* Moving: between these two this rank touches memory of others, and others wait for it before they
 * give up. Begin is false when the communicator was ended; a mover looks for that now and then. */
bool openreg_moving_begin(openreg_comm *comm);
void openreg_moving_end(openreg_comm *comm);

/* For what was ended: fails with its sentence, when nobody moves data any more. */
openreg_status openreg_comm_fail(openreg_comm *comm);

/* For a rank that is waited for and has left. */
openreg_status openreg_comm_fail_left(openreg_comm *comm, int rank);

/* ---- movement.c ------------------------------------------------------------------------------ */

/* Does this rank's share of a call that all have published. False when it was stopped, because the
 * communicator was ended. */
bool openreg_call_move(openreg_comm *comm);

/* ---- copy.c ---------------------------------------------------------------------------------- */

/* Copies tile by tile; false when the communicator was ended meanwhile. */
bool openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                        size_t bytes);

#pragma GCC visibility pop
#endif
