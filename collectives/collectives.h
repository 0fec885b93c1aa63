/* collectives.h: the public interface of the collectives layer.
 *
 * This layer is to simulated devices what NCCL is to GPUs, and it uses NCCL's terms. A communicator
 * joins ranks of one machine. A rank is a process or a thread of a process, and owns one device.
 * Ranks meet in a control segment, which is an anonymous memory file. Each rank maps the arenas of
 * all ranks when the communicator is created, and then reads and writes them directly.
 *
 * Order. Each rank numbers its collectives in the order of its calls. Collectives with the same
 * number belong together. A rank runs one collective at a time. Messages (send and receive) have
 * their own numbers, one sequence for each pair of ranks and direction, and one thread at a time
 * may use each sequence. So messages may overtake collectives and the messages of other pairs.
 *
 * Threads. The calling thread waits: a stream's worker, or the thread that runs inline work. It
 * sleeps. If the process may use a core for each rank, it spins briefly first. An operation reads
 * and writes device memory of its arguments on all ranks between its call and its return, so the
 * work that produced them must have finished before the call.
 *
 * Results are bitwise equal on all ranks and in all runs: reductions run in rank order. float8,
 * float16, bfloat16 and complex32 are computed in float32 and rounded once.
 *
 * Failure. The first of these events aborts a communicator for all its ranks, with one message:
 *   - Ranks call different things under one number (operation, dtype, reduction, count, root). The
 *     message names two ranks and both calls.
 *   - A rank's process was killed. The message names the rank.
 *   - A rank did not arrive within the timeout. The message names rank, number and operation.
 *   - openreg_comm_abort.
 * Ranks that wait, and ranks that call later, get COMMUNICATION_FAILURE with that message. A call
 * that already has all it needs still succeeds. After a call has failed, no other rank writes to
 * this rank's memory. The one exception is a process that is stopped in the middle of a write:
 * the failing call waits for it for at most one second. A rank that left (openreg_comm_destroy, or
 * a process that ran its exit handlers) fails only the ranks that wait for it.
 *
 * Functions return a status, as device.h describes, and may be called from any thread within the
 * limits above. They take none of the caller's locks.
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
  OPENREG_MAX_RANKS = 256,     /* ranks of a communicator */
  OPENREG_COMM_NAME_BYTES = 64 /* a communicator's name in error messages, with the final NUL */
};

/* ---- data types and reductions --------------------------------------------------------------- */

/* X(name, bytes, text in messages). The order defines the numeric values. FLOAT8 (the other
 * formats of 8 bits) and BYTES are for elements that are only moved, whatever their type. */
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
  X(FLOAT8_E4M3, 1, "float8_e4m3fn")                                                               \
  X(FLOAT8_E5M2, 1, "float8_e5m2")                                                                 \
  X(FLOAT8, 1, "float8")                                                                           \
  X(BYTES, 1, "bytes")

typedef enum openreg_dtype {
#define X(name, bytes, text) OPENREG_DTYPE_##name,
  OPENREG_DTYPE_LIST(X)
#undef X
      OPENREG_DTYPE_COUNT
} openreg_dtype;

size_t openreg_dtype_bytes(openreg_dtype dtype);     /* bytes of one element */
const char *openreg_dtype_name(openreg_dtype dtype); /* "float32"; a static string */

/* X(name, text in messages).
 *
 * AVG is the sum divided by the number of ranks; integers are truncated, as C divides. PREMUL_SUM
 * multiplies each rank's elements by that rank's factor and sums the products. MIN and MAX of a
 * number and a NaN are the number, as fmin returns. For bool, SUM and MAX are "or", PRODUCT and MIN
 * are "and", and results are 0 or 1.
 *
 * Not defined, and rejected: AVG and PREMUL_SUM of bool; PREMUL_SUM of integers and float8; MIN and
 * MAX of complex numbers; BAND, BOR and BXOR of everything except bool and integers; any reduction
 * of FLOAT8 and BYTES. */
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

/* A reduction of arrays in memory that this process can read and write, without ranks. */
typedef struct openreg_reduction_job {
  openreg_reduction reduction; /* must be defined for the dtype */
  openreg_dtype dtype;
  int source_count, destination_count; /* at least 1 each */
  const void *const *sources;          /* in the order in which they are reduced */
  void *const *destinations;           /* all receive the same bits */
  const double *factors;               /* PREMUL_SUM: one for each source; otherwise NULL */
  int divisor;                         /* AVG; 0 means the number of sources */
  size_t count;                        /* elements of each array */
} openreg_reduction_job;

/* Reduces tile by tile. It reads a tile of all sources before it writes that tile to a destination.
 * So a destination may be a source, element for element; arrays must not overlap otherwise. All
 * addresses must be multiples of the element size. Between tiles it calls `is_canceled` with
 * `context`, unless that is NULL. When `is_canceled` returns true, it stops and returns false. */
bool openreg_reduce(const openreg_reduction_job *job, bool (*is_canceled)(const void *),
                    const void *context);

/* ---- communicators --------------------------------------------------------------------------- */

typedef struct openreg_comm openreg_comm;

/* Identifies a control segment to the processes of this machine, as ncclUniqueId does. The program
 * may pass it to other processes by any means. It also proves that two processes share memory: a
 * process that cannot open the segment shares none with its creator. */
typedef struct openreg_comm_id {
  unsigned char bytes[64];
} openreg_comm_id;

/* Creates a control segment for `size` ranks, 1 to OPENREG_MAX_RANKS, and writes its id to `id`.
 * This process holds the segment open until all ranks have joined, the id is dropped, or the
 * process ends. Nothing remains after that. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_comm_id_create(int size, openreg_comm_id *id);

/* Closes a segment that this process created. Ranks that have joined keep it. Does nothing when all
 * ranks have joined, or when another process created it. */
void openreg_comm_id_drop(const openreg_comm_id *id);

/* Returns whether this process could join the id: its creator runs on this machine, and this
 * process may open the creator's files. Changes nothing. */
bool openreg_comm_id_is_reachable(const openreg_comm_id *id);

typedef struct openreg_comm_options {
  const char *name;    /* for messages; NULL: none. Cut to OPENREG_COMM_NAME_BYTES - 1. */
  uint64_t timeout_ns; /* how long to wait for the other ranks to join */
  /* The rank numbers that messages show: `size` numbers, which are copied. For a group that is a
   * part of a larger one. NULL: 0 to size - 1. */
  const int *rank_names;
  bool share_device; /* allow two ranks to have one device: OPENREG_SHARE_DEVICE */
} openreg_comm_options;

/* Joins as `rank` of `size` with the memory of `device`, a device of this process, and waits until
 * all ranks have joined. Several threads of a process may join, each as one rank. `options` may be
 * NULL: no name and no time limit. The caller destroys `*comm`. Errors: INVALID_ARGUMENT (rank out
 * of range, rank already joined, a size that differs from the id's, bytes that are not an id, an id
 * that cannot be reached), INVALID_DEVICE, COMMUNICATION_FAILURE (two ranks with one device, ranks
 * that did not join in time, a rank that died or left meanwhile; the message names them),
 * OUT_OF_MEMORY, SYSTEM, and the errors of openreg_arena_get. */
openreg_status openreg_comm_init(const openreg_comm_id *id, int size, int rank, int device,
                                 const openreg_comm_options *options, openreg_comm **comm);

/* Creates `size` communicators of one process, as ncclCommInitAll does: rank i with devices[i], for
 * a thread that uses several devices. Errors: as openreg_comm_init; then it creates none. */
openreg_status openreg_comm_init_all(int size, const int devices[],
                                     const openreg_comm_options *options, openreg_comm *comms[]);

int openreg_comm_rank(const openreg_comm *comm);
int openreg_comm_size(const openreg_comm *comm);
int openreg_comm_device(const openreg_comm *comm);

/* Returns OK, or COMMUNICATION_FAILURE with the message when the communicator was aborted. */
openreg_status openreg_comm_check(const openreg_comm *comm);

/* Aborts the communicator for all ranks, unless it was aborted before. Ranks that wait in it
 * return. The message is "rank 2 aborted the group: <why>"; `why` may be NULL. */
void openreg_comm_abort(openreg_comm *comm, const char *why);

/* Leaves the communicator and frees this rank's resources. No call on it may be running. NULL is
 * allowed. */
void openreg_comm_destroy(openreg_comm *comm);

/* Leaves all communicators of the process, as its end does. For processes that end without running
 * destructors. No communicator may be used afterwards. */
void openreg_comm_leave(void);

/* ---- collectives ----------------------------------------------------------------------------- */

/* How many buffers one side of a collective (inputs or outputs) has. Where a side has one buffer
 * per rank, the caller may pass a single buffer instead that holds chunks of equal length, one
 * after the other. */
typedef enum openreg_buffer_rule {
  OPENREG_BUFFERS_NONE,
  OPENREG_BUFFERS_ONE,
  OPENREG_BUFFERS_PER_RANK,
  OPENREG_BUFFERS_ONE_AT_ROOT,
  OPENREG_BUFFERS_PER_RANK_AT_ROOT,
} openreg_buffer_rule;

static inline bool openreg_buffers_are_per_rank(openreg_buffer_rule rule) {
  return rule == OPENREG_BUFFERS_PER_RANK || rule == OPENREG_BUFFERS_PER_RANK_AT_ROOT;
}

/* Which lengths must agree between ranks. */
typedef enum openreg_length_rule {
  OPENREG_LENGTHS_NONE,     /* the collective moves no elements */
  OPENREG_LENGTHS_EQUAL,    /* all ranks pass buffers of the same length */
  OPENREG_LENGTHS_INPUTS,   /* all ranks pass the same list of input lengths */
  OPENREG_LENGTHS_OUTPUTS,  /* all ranks pass the same list of output lengths */
  OPENREG_LENGTHS_PAIRWISE, /* what rank i sends to rank j is as long as what j receives from i */
} openreg_length_rule;

enum openreg_collective_flags {
  OPENREG_HAS_ROOT = 1 << 0,               /* one rank is the root */
  OPENREG_REDUCES = 1 << 1,                /* combines elements by an openreg_reduction */
  OPENREG_ROOT_OUTPUT_IS_OPTIONAL = 1 << 2 /* the root may pass no output */
};

/* One row for each collective; everything that depends on the kind reads it.
 *
 * X(name, text in messages, rule of the inputs, rule of the outputs, lengths that must agree,
 * flags, the function move_... of movement.c that does a rank's share) */
#define OPENREG_COLLECTIVE_LIST(X)                                                                 \
  X(ALL_REDUCE, "all_reduce", ONE, ONE, EQUAL, OPENREG_REDUCES, reduced)                           \
  X(REDUCE, "reduce", ONE, ONE_AT_ROOT, EQUAL, OPENREG_HAS_ROOT | OPENREG_REDUCES, reduced)        \
  X(REDUCE_SCATTER, "reduce_scatter", PER_RANK, ONE, INPUTS, OPENREG_REDUCES, reduced_chunk)       \
  X(BROADCAST, "broadcast", ONE_AT_ROOT, ONE, EQUAL,                                               \
    OPENREG_HAS_ROOT | OPENREG_ROOT_OUTPUT_IS_OPTIONAL, from_root)                                 \
  X(ALL_GATHER, "all_gather", ONE, PER_RANK, OUTPUTS, 0, from_all)                                 \
  X(GATHER, "gather", ONE, PER_RANK_AT_ROOT, PAIRWISE, OPENREG_HAS_ROOT, from_all)                 \
  X(SCATTER, "scatter", PER_RANK_AT_ROOT, ONE, PAIRWISE, OPENREG_HAS_ROOT, from_root)              \
  X(ALL_TO_ALL, "all_to_all", PER_RANK, PER_RANK, PAIRWISE, 0, from_all)                           \
  X(BARRIER, "barrier", NONE, NONE, NONE, 0, nothing)

typedef enum openreg_collective_kind {
#define X(name, text, inputs, outputs, lengths, flags, move) OPENREG_COLLECTIVE_##name,
  OPENREG_COLLECTIVE_LIST(X)
#undef X
      OPENREG_COLLECTIVE_COUNT
} openreg_collective_kind;

typedef struct openreg_collective_traits {
  const char *name; /* "all_reduce" */
  openreg_buffer_rule inputs, outputs;
  openreg_length_rule lengths;
  bool has_root, reduces, is_root_output_optional;
} openreg_collective_traits;

/* The row of a collective; never freed. */
const openreg_collective_traits *openreg_collective_traits_of(openreg_collective_kind kind);

const char *openreg_collective_name(openreg_collective_kind kind);

/* Elements at a device address of this rank's device. */
typedef struct openreg_comm_buffer {
  void *address;
  size_t count; /* elements of the call's dtype */
} openreg_comm_buffer;

/* One rank's arguments of a collective. Inputs and outputs are lists of buffers, which may lie
 * anywhere in the device's memory:
 *
 *     kind             inputs                            outputs
 *     ALL_REDUCE       1                                 1 of the same length
 *     REDUCE           1                                 1 of the same length at the root
 *     REDUCE_SCATTER   n: buffer i is for rank i         1, as long as this rank's input
 *     BROADCAST        1 at the root                     1 of the same length; optional at the root
 *     ALL_GATHER       1                                 n: buffer i is from rank i
 *     GATHER           1                                 n at the root
 *     SCATTER          n at the root                     1
 *     ALL_TO_ALL       n: buffer i is for rank i         n: buffer i is from rank i
 *     BARRIER          0                                 0
 *
 * Counts may be 0. Where elements are only moved, counts may differ between ranks, but what rank i
 * sends to rank j must be as long as what j receives from i. An output may be the same memory as
 * the input that goes to the same place (in place: the whole buffer of ALL_REDUCE and REDUCE, this
 * rank's own chunk otherwise). Buffers must not overlap otherwise. */
typedef struct openreg_collective {
  openreg_collective_kind kind;
  openreg_dtype dtype;
  openreg_reduction reduction; /* only for collectives that reduce */
  double factor;               /* PREMUL_SUM: this rank's factor, rounded to the dtype */
  const void *factor_address;  /* or its device address, one element of the dtype; NULL: `factor` */
  int root;                    /* only for collectives that have one */
  const openreg_comm_buffer *inputs, *outputs;
  int input_count, output_count;
  uint64_t timeout_ns; /* from the call on; UINT64_MAX: none */
  bool only_checks;    /* compares the calls of the ranks, and leaves most outputs as they are */
} openreg_collective;

/* Runs a collective. Returns when this rank's outputs are written and no rank reads its inputs any
 * more. Errors: INVALID_ARGUMENT (numbers of buffers, lengths, root out of range, undefined
 * reduction), INVALID_ADDRESS (memory of another device, or imported from another process): these
 * are found before other ranks see the call, and do not use up a number. COMMUNICATION_FAILURE. */
openreg_status openreg_comm_run(openreg_comm *comm, const openreg_collective *collective);

/* The same in two steps, for a caller that tries briefly and leaves the rest to another thread.
 * Begin publishes the call to the other ranks and does not wait for them. Finish waits for at most
 * `patience_ns` and returns NOT_READY after that; any thread may call it again. What `collective`
 * points to must stay valid and unchanged until finish returns something else. Errors: as
 * openreg_comm_run; begin reports all except COMMUNICATION_FAILURE of this call. */
openreg_status openreg_comm_begin(openreg_comm *comm, const openreg_collective *collective);
openreg_status openreg_comm_finish(openreg_comm *comm, uint64_t patience_ns);

/* Returns whether the process may use a core for each rank, and more than one. If not, a rank that
 * waits gains nothing by handing the wait to another thread. */
bool openreg_comm_has_core_per_rank(const openreg_comm *comm);

/* The number of this rank's next collective; the first has number 1. */
uint64_t openreg_comm_next_number(const openreg_comm *comm);

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct openreg_message {
  bool is_send;
  int peer; /* another rank, or this one: then a send and a receive of one call belong together */
  openreg_dtype dtype;
  openreg_comm_buffer buffer;
  bool only_checks; /* compares the two sides, and leaves most received buffers as they are */
} openreg_message;

/* Sends and receives `count` messages concurrently, as NCCL does within a group call: no message of
 * the call waits for another one to finish. Messages of one pair and direction are matched in
 * order. Returns when all received data has arrived and all sent buffers may be written again.
 * Small sends do not wait for the receiver. A send and its receive must have the same dtype and
 * length. Errors: as openreg_comm_run. A timeout's message names the peer. */
openreg_status openreg_comm_exchange(openreg_comm *comm, const openreg_message *messages, int count,
                                     uint64_t timeout_ns);

/* ---- processes of ranks ---------------------------------------------------------------------- */

/* When a process started, in clock ticks as /proc reports them; 0: unknown. A process id alone may
 * have been reused by now. */
uint64_t openreg_process_started(int pid);

/* Returns whether the process `pid` that started at `started` has ended; false when that is
 * unknown. With `started` 0 the process id alone decides. */
bool openreg_process_has_ended(int pid, uint64_t started);

#ifdef __cplusplus
}
#endif
#endif
