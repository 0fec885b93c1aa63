/* collectives.h: the whole contract of the collectives layer.
 *
 * Ranks that compute together on the memory of their devices: to simulated devices what NCCL is to
 * GPUs, and in its words. A communicator joins ranks of one machine. Ranks are processes, threads
 * of one, or both; each has one device. They meet in a control segment, a memory file without a
 * name, and read each other's arenas directly, which each maps once, when the communicator is made.
 *
 * Order. The operations of a communicator are numbered by each rank in the order in which it calls
 * them; what has the same number belongs together. A rank calls one collective at a time. Messages
 * (send and receive) are numbered by themselves, for each pair of ranks and each direction, and one
 * thread at a time may be at each of these; so they pass each other, collectives, and messages of
 * other pairs.
 *
 * Waiting is done on the calling thread: a stream's worker, or whoever has the stream's turn. It
 * sleeps, and looks for a moment before only when there are cores for all ranks. An operation
 * touches device memory of its arguments on all ranks between its call and its return: the work
 * that wrote them must have finished before the call.
 *
 * Results are the same bits on all ranks and in all runs: reductions are done in the order of the
 * ranks. float16, bfloat16 and their complex are computed in float32 and rounded once.
 *
 * Failure. The first of these ends a communicator, for all its ranks, with one sentence:
 *   - ranks that call different things under one number (operation, dtype, reduction, count, root):
 *     names two ranks and both calls;
 *   - a rank whose process was killed: names it;
 *   - a rank that did not come within an operation's time: names rank, number and operation;
 *   - openreg_comm_abort.
 * Who waits then, and who calls later, gets COMMUNICATION_FAILURE with that sentence. What had all
 * that it needs succeeds nevertheless. When a call has failed, no other rank writes to this rank's
 * memory any more, but one whose process is stopped in the middle of a write, which is waited for
 * for a second only. A rank that left (openreg_comm_destroy, or an end of its process that ran its
 * exit handlers) fails only those who wait for it.
 *
 * Functions return a status as device.h says and may be called from any thread, for one
 * communicator as said above. They take no lock of the caller's.
 */
#ifndef OPENREG_COLLECTIVES_H
#define OPENREG_COLLECTIVES_H

#include "device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  OPENREG_MAX_RANKS = 256,     /* of a communicator */
  OPENREG_COMM_NAME_BYTES = 64 /* of a communicator, for sentences */
};

/* ---- what is computed ------------------------------------------------------------------------ */

/* X(name, bytes, what a sentence calls it): the order is the numeric value. The last ones are for
 * what is only moved, whatever its type. */
#define OPENREG_DTYPE_LIST(X)                                                                      \
  X(BOOL, 1, "bool")                                                                               \
  X(UINT8, 1, "uint8")                                                                             \
  X(INT8, 1, "int8")                                                                               \
  X(UINT16, 2, "uint16")                                                                           \
  X(INT16, 2, "int16")                                                                             \
  X(UINT32, 4, "uint32")                                                                           \
  X(INT32, 4, "int32")                                                                             \
  X(UINT64, 8, "uint64")                                                                           \
  X(INT64, 8, "int64")                                                                             \
  X(FLOAT16, 2, "float16")                                                                         \
  X(BFLOAT16, 2, "bfloat16")                                                                       \
  X(FLOAT32, 4, "float32")                                                                         \
  X(FLOAT64, 8, "float64")                                                                         \
  X(COMPLEX32, 4, "complex32")                                                                     \
  X(COMPLEX64, 8, "complex64")                                                                     \
  X(COMPLEX128, 16, "complex128")                                                                  \
  X(FLOAT8, 1, "float8")                                                                           \
  X(BYTES, 1, "bytes")

typedef enum openreg_dtype {
#define X(name, bytes, text) OPENREG_DTYPE_##name,
  OPENREG_DTYPE_LIST(X)
#undef X
      OPENREG_DTYPE_COUNT
} openreg_dtype;

size_t openreg_dtype_bytes(openreg_dtype dtype);
const char *openreg_dtype_name(openreg_dtype dtype);

/* X(name, what a sentence calls it).
 *
 * AVG is the sum divided by the number of ranks; of integers it is cut, as C divides. PREMUL_SUM
 * sums each rank's elements times its factor. MIN and MAX of a number and a NaN are the number, as
 * of fmin. Of bool SUM and MAX are "or", PRODUCT and MIN "and", and results are 0 or 1.
 *
 * Not defined, and refused: AVG and PREMUL_SUM of bool, PREMUL_SUM of integers, MIN and MAX of
 * complex numbers, BAND, BOR and BXOR of all but bool and integers, all of FLOAT8 and BYTES. */
#define OPENREG_REDUCTION_LIST(X)                                                                  \
  X(SUM, "sum")                                                                                    \
  X(AVG, "avg")                                                                                    \
  X(PRODUCT, "product")                                                                            \
  X(MIN, "min")                                                                                    \
  X(MAX, "max")                                                                                    \
  X(PREMUL_SUM, "premul_sum")                                                                      \
  X(BAND, "band")                                                                                  \
  X(BOR, "bor")                                                                                    \
  X(BXOR, "bxor")

typedef enum openreg_reduction {
#define X(name, text) OPENREG_REDUCE_##name,
  OPENREG_REDUCTION_LIST(X)
#undef X
      OPENREG_REDUCTION_COUNT
} openreg_reduction;

const char *openreg_reduction_name(openreg_reduction reduction);
bool openreg_reduction_is_defined(openreg_reduction reduction, openreg_dtype dtype);

/* The arithmetic alone, on memory that this process can read and write. */
typedef struct openreg_reduction_job {
  openreg_reduction reduction; /* defined for the dtype */
  openreg_dtype dtype;
  int source_count, destination_count; /* 1 or more each */
  const void *const *sources;          /* in the order in which they are reduced */
  void *const *destinations;           /* all get the same bits */
  const double *factors;               /* of PREMUL_SUM: one for each source; else NULL */
  int divisor;                         /* of AVG; 0: the number of sources */
  size_t count;                        /* elements of each */
} openreg_reduction_job;

/* Reduces tile by tile: a tile of all sources is read before it is written to any destination, so a
 * destination may be a source, element for element; they must not overlap otherwise. All addresses
 * are multiples of the element's bytes. `is_ended` (NULL: never) is asked between tiles, and ends
 * the work when it holds; returns false then. */
bool openreg_reduce(const openreg_reduction_job *job, bool (*is_ended)(const void *),
                    const void *context);

/* ---- communicators --------------------------------------------------------------------------- */

typedef struct openreg_comm openreg_comm;

/* Names a control segment to the processes of this machine, by any means: what ncclUniqueId is. It
 * proves that two processes share memory: where it cannot be opened, they do not. */
typedef struct openreg_comm_id {
  unsigned char bytes[64];
} openreg_comm_id;

/* Makes a control segment for so many ranks, 1 to OPENREG_MAX_RANKS. This process holds it open for
 * others until all have joined, or until it ends or drops it; of it nothing is left behind.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_comm_id_create(int size, openreg_comm_id *id);

/* Lets go of a segment that this process created. Who has joined keeps it. Does nothing for one
 * that all have joined. */
void openreg_comm_id_drop(const openreg_comm_id *id);

/* Whether the process that created the id lives on this machine, and this process may open what it
 * has: then the id can be joined here. Touches nothing. */
bool openreg_comm_id_is_reachable(const openreg_comm_id *id);

typedef struct openreg_comm_options {
  const char *name;    /* for sentences; NULL: none. Cut to OPENREG_COMM_NAME_BYTES - 1. */
  uint64_t timeout_ns; /* for the others to join */
  /* What the ranks of the communicator are called in sentences, `size` numbers that are copied, for
   * groups that are a part of a larger one; NULL: as they are. */
  const int *rank_names;
  bool share_device; /* two ranks may have one device: OPENREG_SHARE_DEVICE */
} openreg_comm_options;

/* Joins as `rank` of `size`, with the memory of a device of this process, and waits until all have
 * joined. Several threads of a process may join, each as a rank. `options` may be NULL: no name,
 * and any time to join. Errors: INVALID_ARGUMENT (a rank out of range, one that has joined already,
 * another size than the id was created for, bytes that are no id, an id that cannot be reached),
 * INVALID_DEVICE, COMMUNICATION_FAILURE (two ranks with one device: names both; ranks that did not
 * come in time: names them; one that ended meanwhile), OUT_OF_MEMORY, SYSTEM, and those of
 * openreg_arena_get. */
openreg_status openreg_comm_init(const openreg_comm_id *id, int size, int rank, int device,
                                 const openreg_comm_options *options, openreg_comm **comm);

/* Communicators of one process among themselves, rank i with devices[i], as ncclCommInitAll makes:
 * for a thread that has several devices. Errors: as openreg_comm_init; then none is made. */
openreg_status openreg_comm_init_all(int size, const int devices[],
                                     const openreg_comm_options *options, openreg_comm *comms[]);

int openreg_comm_rank(const openreg_comm *comm);
int openreg_comm_size(const openreg_comm *comm);
int openreg_comm_device(const openreg_comm *comm);

/* OK, or COMMUNICATION_FAILURE with the sentence, if the communicator was ended. */
openreg_status openreg_comm_check(const openreg_comm *comm);

/* Ends it for all ranks, unless it was ended: who waits in it returns. `why` for the sentence:
 * "rank 2 aborted the group: <why>"; NULL: no reason is given. */
void openreg_comm_abort(openreg_comm *comm, const char *why);

/* Leaves it, and frees what this rank has of it. No call on it may be running. NULL is allowed. */
void openreg_comm_destroy(openreg_comm *comm);

/* ---- collectives ----------------------------------------------------------------------------- */

/* X(name, what a sentence calls it). */
#define OPENREG_COLLECTIVE_LIST(X)                                                                 \
  X(ALL_REDUCE, "all_reduce")                                                                      \
  X(REDUCE, "reduce")                                                                              \
  X(REDUCE_SCATTER, "reduce_scatter")                                                              \
  X(BROADCAST, "broadcast")                                                                        \
  X(ALL_GATHER, "all_gather")                                                                      \
  X(GATHER, "gather")                                                                              \
  X(SCATTER, "scatter")                                                                            \
  X(ALL_TO_ALL, "all_to_all")                                                                      \
  X(BARRIER, "barrier")

typedef enum openreg_collective_kind {
#define X(name, text) OPENREG_COLLECTIVE_##name,
  OPENREG_COLLECTIVE_LIST(X)
#undef X
      OPENREG_COLLECTIVE_COUNT
} openreg_collective_kind;

const char *openreg_collective_name(openreg_collective_kind kind);

/* Elements at a device address of this rank's device. */
typedef struct openreg_part {
  void *address;
  size_t count;
} openreg_part;

/* One rank's side of a collective. What goes in and comes out are lists of parts, which may lie
 * anywhere in the device's memory:
 *
 *     kind             inputs                        outputs
 *     ALL_REDUCE       1                             1, as long
 *     REDUCE           1                             1 at the root, as long
 *     REDUCE_SCATTER   n: part i is for rank i       1, as long as this rank's part
 *     BROADCAST        1 at the root                 1, as long; at the root it may be left out
 *     ALL_GATHER       1                             n: part i is from rank i
 *     GATHER           1                             n at the root
 *     SCATTER          n at the root                 1
 *     ALL_TO_ALL       n: part i is for rank i       n: part i is from rank i
 *     BARRIER          0                             0
 *
 * Where n parts follow each other in memory and are of one length, one part that holds them all may
 * be given instead. Counts may be 0, and differ between ranks where parts are moved; what rank i
 * sends to rank j must be as long as what j takes from i. An output may be the very memory of an
 * input that goes to the same place (in place: of ALL_REDUCE and REDUCE; this rank's own part of
 * the others); they must not overlap otherwise. */
typedef struct openreg_collective {
  openreg_collective_kind kind;
  openreg_dtype dtype;
  openreg_reduction reduction; /* of the three that reduce */
  double factor;               /* of PREMUL_SUM: this rank's; rounded to the dtype */
  const void *factor_address;  /* or where on the device it is, one element of the dtype; or NULL */
  int root;                    /* of those that have one */
  const openreg_part *inputs, *outputs;
  int input_count, output_count;
  uint64_t timeout_ns; /* from the call on; UINT64_MAX: for ever */
} openreg_collective;

/* Does a collective; returns when this rank's outputs are written and nobody reads its inputs any
 * more. Errors: INVALID_ARGUMENT (counts of parts, a root out of range, a reduction that is not
 * defined), INVALID_ADDRESS (memory of another device, or of another process that this one
 * imported): found before anything is told to the others, the number is not used up;
 * COMMUNICATION_FAILURE. */
openreg_status openreg_comm_run(openreg_comm *comm, const openreg_collective *collective);

/* The same in two steps, for a caller that tries for a moment and leaves the rest to another
 * thread: begin tells the others and does not wait for them; finish waits for at most `patience_ns`
 * and answers NOT_READY, to be called again, by any thread. What `collective` points to must stay
 * as it is until finish has answered something else. Errors: as openreg_comm_run, all but
 * COMMUNICATION_FAILURE by begin. */
openreg_status openreg_comm_begin(openreg_comm *comm, const openreg_collective *collective);
openreg_status openreg_comm_finish(openreg_comm *comm, uint64_t patience_ns);

/* Whether the calling process may use a core for each rank, and more than one. If not, who waits
 * for the others gains nothing from another thread that could wait instead. */
bool openreg_comm_has_cores(const openreg_comm *comm);

/* The number that the next collective of this rank has; the first has 1. */
uint64_t openreg_comm_next_number(const openreg_comm *comm);

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct openreg_message {
  bool is_send;
  int peer; /* another rank, or this one: then a send and a receive of one call belong together */
  openreg_dtype dtype;
  openreg_part part;
} openreg_message;

/* Sends and receives, all of them at the same time, as NCCL does within a group call: none waits
 * for another one of the call to be done. Messages of a pair in one direction are matched in order.
 * Returns when all that is received has arrived, and all that is sent may be written again: small
 * messages do not wait for the receiver. A message and what it meets must be of one dtype and
 * length. Errors: as openreg_comm_run; a message that nobody took in time names the peer. */
openreg_status openreg_comm_exchange(openreg_comm *comm, const openreg_message *messages, int count,
                                     uint64_t timeout_ns);

/* ---- processes of ranks ---------------------------------------------------------------------- */

/* When a process was started, in the clock ticks of /proc; 0: not known. A number alone may by now
 * be another one's. */
uint64_t openreg_process_started(int pid);

/* Whether the process that was started then has ended; false, too, when that cannot be found out.
 * `started` may be 0: then the number alone counts. */
bool openreg_process_has_ended(int pid, uint64_t started);

#ifdef __cplusplus
}
#endif
#endif
