/* device.h: the whole contract of the device layer.
 *
 * N accelerators simulated inside ordinary memory. Each owns an arena of its full capacity, a
 * memory file mapped twice: the device view, whose addresses are shown to the program and which
 * the host may not touch, and the kernel view, through which kernels and copies reach the same
 * bytes. Both views of all devices lie in two reservations of one shape, so that
 *
 *     kernel address = device address + openreg_kernel_offset       for every device.
 *
 * Every function that can fail returns an openreg_status and gives its result through a pointer;
 * openreg_last_error() holds the sentence for a person. All functions may be called from any
 * thread. Results are not written when a function fails, and pointers to them must not be NULL.
 * A function that takes a device fails with INVALID_CONFIGURATION while the environment holds a
 * bad value, said here once for all. Nothing here knows of PyTorch.
 */
#ifndef OPENREG_DEVICE_H
#define OPENREG_DEVICE_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration --------------------------------------------------------------------------- */

enum {
  OPENREG_MAX_DEVICES = 64,
  OPENREG_NAME_BYTES = 64,
  OPENREG_LIST_BYTES = 4096,
  OPENREG_UUID_BYTES = 16,
  OPENREG_UUID_TEXT_BYTES = 37, /* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" and the final zero */
};

/* A GPU whose numbers a device shows: one of a table, or just numbers, written 48x1536, which then
 * shows as "openreg 48x1536" with capability 8.0. */
typedef struct openreg_profile {
  char key[OPENREG_NAME_BYTES];  /* as written in OPENREG_PROFILE: "h100" */
  char name[OPENREG_NAME_BYTES]; /* as torch.cuda.get_device_name prints it: "NVIDIA L4" */
  int multiprocessor_count;
  int max_threads_per_multiprocessor;
  int major, minor; /* compute capability */
  int l2_cache_mib; /* this and the following: 0 for a profile given as numbers */
  int clock_mhz, memory_clock_mhz, memory_bus_bits;
  uint64_t memory_bytes;  /* total memory of the real thing */
  uint64_t context_bytes; /* of it, what each process takes that uses the device: see devices */
} openreg_profile;

typedef struct openreg_config {
  int device_count;                           /* 1 to OPENREG_MAX_DEVICES */
  uint64_t memory_bytes[OPENREG_MAX_DEVICES]; /* capacity, a multiple of 2 MiB */
  openreg_profile profiles[OPENREG_MAX_DEVICES];
  bool launch_blocking;
  bool host_access;
  bool debug_memory;              /* implies launch_blocking */
  bool gpu_overhead;              /* processes have contexts: see devices */
  char group[OPENREG_NAME_BYTES]; /* OPENREG_GROUP; "" when not set */

  /* What the devices lack, separated by commas; "" for nothing. Operators are "aten::svd", for all
   * overloads, or "aten::add.Tensor". This layer has neither operators nor dtypes: it checks how
   * the lists are written, and who has them refuses. */
  char block_operators[OPENREG_LIST_BYTES];
  char unsupported_dtypes[OPENREG_LIST_BYTES];
} openreg_config;

/* Fills `config` from OPENREG_DEVICE_COUNT, OPENREG_DEVICE_MEMORY, OPENREG_PROFILE, OPENREG_GROUP,
 * OPENREG_LAUNCH_BLOCKING, OPENREG_HOST_ACCESS, OPENREG_DEBUG_MEMORY, OPENREG_GPU_OVERHEAD,
 * OPENREG_BLOCK_OPERATORS and OPENREG_UNSUPPORTED_DTYPES as `lookup` gives them (NULL: the process
 * environment). `machine_bytes` is the memory to share out when no capacity is given (0: this
 * machine's). Pure: reads nothing else, keeps nothing.
 * Errors: INVALID_CONFIGURATION, with variable, value and what is allowed in the sentence. */
openreg_status openreg_config_read(openreg_getenv lookup, uint64_t machine_bytes,
                                   openreg_config *config);

/* The process's configuration, read once, on first use. Errors: as openreg_config_read, the same
 * again on each call. The pointer stays valid for the life of the process. */
openreg_status openreg_config_get(const openreg_config **config);

/* Known profiles, in the order they are listed to a person; NULL past the end. */
const openreg_profile *openreg_profile_at(int index);

/* ---- devices --------------------------------------------------------------------------------- */

/* A process sees all devices that are configured, unless OPENREG_VISIBLE_DEVICES is set: it chooses
 * some, in an order, by their numbers in the group or by UUIDs, as CUDA_VISIBLE_DEVICES does for
 * GPUs. With OPENREG_DEVICE_TYPE=cuda CUDA_VISIBLE_DEVICES is read instead. What the variables say
 * when devices are first counted or used stays true for the life of the process and for children
 * that are forked after that. A device is what this process counts, from 0 on, in all functions. */

/* Number of devices that this process sees; 0 when the environment chooses none. Does not
 * initialize anything. */
openreg_status openreg_device_count(int *count);

/* Reserves and maps every arena, reads the machine's topology and installs the fault handler; the
 * first call does the work, later ones are free. Other functions below call it by themselves.
 * Errors: INVALID_CONFIGURATION, INVALID_DEVICE (this process sees none), BAD_FORK, OUT_OF_MEMORY
 * (of the host, or too many processes in the group), SYSTEM. Functions that call it fail likewise.
 */
openreg_status openreg_initialize(void);
bool openreg_is_initialized(void);

/* True in a child that was forked after its parent initialized. Such a process has no devices:
 * functions below that reach memory or wait for work fail with BAD_FORK. Addresses of the parent's
 * devices stay reserved in it, and fault when touched. */
bool openreg_in_bad_fork(void);

/* The calling thread's current device; every thread starts with 0. Reading does not initialize.
 * Errors of set: INVALID_DEVICE. */
int openreg_device_current(void);
openreg_status openreg_device_set_current(int device);

typedef struct openreg_device_properties {
  openreg_profile profile;
  uint64_t total_memory_bytes; /* capacity: what the device really has here */
  int number_in_group;         /* as openreg_config and snapshots count, whoever sees the device */
  unsigned char uuid[OPENREG_UUID_BYTES];
  /* Placement, on this machine or the one that HWLOC_SYNTHETIC or HWLOC_XMLFILE describes. Memory
   * and workers are bound to it on this machine only, as far as the system permits. */
  int numa_node;    /* hwloc's OS index of the first node of the cores; -1: not known */
  char cpuset[256]; /* hwloc's list of the cores, "0-3", cut after a whole range; "": not known */
} openreg_device_properties;

/* Errors: INVALID_DEVICE, BAD_FORK, INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_device_get_properties(int device, openreg_device_properties *properties);

/* What tells a device from all others: the same for all processes of a user that are in a group, at
 * any time, and another one for each device, group and user. Pure. `group` as a snapshot names it.
 */
void openreg_device_make_uuid(const char *group, int number_in_group,
                              unsigned char uuid[OPENREG_UUID_BYTES]);
void openreg_device_write_uuid(const unsigned char uuid[OPENREG_UUID_BYTES],
                               char text[OPENREG_UUID_TEXT_BYTES]);

/* Where a device would be on a PCI bus, had it one: domain 0, this bus, device 0. From 1 to 64. */
static inline int openreg_device_pci_bus(int number_in_group) {
  return number_in_group + 1;
}

/* Whether kernels and copies of `device` may reach the memory of `peer`: true for every pair of
 * different devices, false for a device and itself, as CUDA answers. Errors: INVALID_DEVICE. */
openreg_status openreg_device_can_access_peer(int device, int peer, bool *can_access);

/* Takes this process's context on the device, if it has none there: what the driver of a GPU keeps
 * for each process. With OPENREG_GPU_OVERHEAD=1 it is profile.context_bytes of the device's
 * capacity, from the process's first use of the device until the process ends; without it there are
 * no contexts, and this does nothing. Functions below that reach a device's memory, or give work to
 * its streams, take it by themselves. Errors: INVALID_DEVICE, OUT_OF_MEMORY when it does not fit,
 * and those of openreg_initialize. Functions that take it fail likewise. */
openreg_status openreg_device_take_context(int device);

/* Keeps the calling thread on the cores placed with the device; for -1, on all that the process was
 * allowed to use when it initialized. Does nothing before that, or where the system refuses. */
void openreg_device_bind_thread(int device);

/* ---- arenas ---------------------------------------------------------------------------------- */

/* kernel address - device address: one constant for all devices, set by openreg_initialize and
 * never changed after; 0 with OPENREG_HOST_ACCESS=1. */
extern intptr_t openreg_kernel_offset;

static inline void *openreg_kernel_view(const void *device_address) {
  return (void *)((intptr_t)device_address + openreg_kernel_offset);
}
static inline void *openreg_device_view(const void *kernel_address) {
  return (void *)((intptr_t)kernel_address - openreg_kernel_offset);
}

/* The device view of a whole arena: [base, base + bytes), base aligned to 2 MiB. `bytes` is twice
 * the device's capacity or more, for which see the ledger: where memory lies is up to the
 * allocator. Errors: INVALID_DEVICE, BAD_FORK, INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_arena_get(int device, void **base, size_t *bytes);

/* Which device's memory an address lies in, seen through the device view; -1 for any other. Does
 * not initialize. Cheap: two comparisons and a shift. */
int openreg_arena_device_of(const void *device_address);

/* Gives the pages of a range back to the system; the range reads as zeros afterwards. Both ends
 * must be multiples of the page size inside one arena (device view).
 * Errors: INVALID_ARGUMENT, INVALID_ADDRESS, BAD_FORK, SYSTEM. */
openreg_status openreg_arena_release(void *device_address, size_t bytes);

/* ---- ledger: how much of each device is in use ----------------------------------------------- */

/* A fact of the machine, as with a GPU: the processes of one user and one group share the capacity
 * of the devices. The group is OPENREG_GROUP or, without it, all processes that are configured
 * alike. What a process takes it has until it gives it back or ends, in whichever way. The group's
 * control file, 2.0 MB in the user's folder /dev/shm/openreg-<user>, goes with its last process;
 * when that was killed, it stays until somebody joins or lists. */
enum {
  OPENREG_MAX_PROCESSES = 1024,   /* of a group at one time */
  OPENREG_GROUP_NAME_BYTES = 128, /* what stands for a group to a person and to the functions */
};

/* Takes `bytes` of the device's capacity, or fails with OUT_OF_MEMORY and takes nothing.
 * Other errors: as openreg_arena_get, and NOT_PERMITTED when the process is ending. */
openreg_status openreg_ledger_take(int device, uint64_t bytes);

/* Gives back what was taken. Giving back more than was taken is a programming mistake. */
void openreg_ledger_give(int device, uint64_t bytes);

/* Bytes that no process has, and capacity. Errors: as openreg_arena_get, and NOT_PERMITTED when the
 * process is ending. */
openreg_status openreg_ledger_query(int device, uint64_t *free_bytes, uint64_t *total_bytes);

/* One snapshot of a group, for people. */
typedef struct openreg_ledger_device {
  char profile[OPENREG_NAME_BYTES]; /* openreg_profile.key and .name */
  char name[OPENREG_NAME_BYTES];
  unsigned char uuid[OPENREG_UUID_BYTES];
  int multiprocessor_count, major, minor; /* of the profile; 0 for one that is not known here */
  uint64_t total_bytes, used_bytes;
  int busy_percent; /* 0 to 100, what it worked lately; -1: not known yet */
  int numa_node;    /* as in openreg_device_properties, where the group's first process found it */
  char cpuset[256];
} openreg_ledger_device;

typedef struct openreg_ledger_process {
  int pid;
  bool has_exited;               /* other processes still use memory that it had exported to them */
  int64_t started_ns;            /* CLOCK_REALTIME when its devices were initialized */
  char name[OPENREG_NAME_BYTES]; /* how it was started: its arguments, cut */
  uint64_t bytes[OPENREG_MAX_DEVICES];
} openreg_ledger_process;

typedef struct openreg_ledger_snapshot {
  char group[OPENREG_GROUP_NAME_BYTES];
  int device_count, process_count;
  openreg_ledger_device devices[OPENREG_MAX_DEVICES];
  openreg_ledger_process *processes; /* in the order in which they started */
} openreg_ledger_snapshot;

/* How busy a device is: the time in which its streams had work running, over that since an earlier
 * look, at which it was asked too: the last one that is a second old, by whichever process; or the
 * first, if that is a tenth of a second old. Streams that work at the same time are added up, to at
 * most 100. Work on workers is always counted. Inline work is while somebody looks: a look has it
 * counted for the next ten seconds, what began before aside; so it costs nothing else. */

/* Snapshots of all groups of this user that have processes, in the order of their names, whatever
 * this process's own configuration is. Initializes nothing, joins no group; reclaims what dead
 * processes had. The array is the caller's, to be freed with openreg_ledger_free_snapshots. A
 * control file that is corrupt, or that a stopped process has locked for a second, is left out, and
 * named in `problem` (NULL: none; valid until this thread's next call). Names of processes may hold
 * any bytes but control characters. Errors: SYSTEM, OUT_OF_MEMORY (of the host). */
openreg_status openreg_ledger_list(openreg_ledger_snapshot **snapshots, int *count,
                                   const char **problem);
void openreg_ledger_free_snapshots(openreg_ledger_snapshot *snapshots, int count);

/* The snapshot of this process's own group alone, to be freed as a list of one. Only with `looks`
 * it tells how busy the devices are. NOT_READY: no process is in the group. Errors:
 * INVALID_CONFIGURATION (also for what openreg_ledger_list names a problem), SYSTEM, OUT_OF_MEMORY
 * (of the host). */
openreg_status openreg_ledger_find_own(bool looks, openreg_ledger_snapshot **snapshot);

/* What the snapshot of this process's group would be with no process in it: the devices as they are
 * configured and would be placed, all free. Owns nothing. Initializes nothing.
 * Errors: INVALID_CONFIGURATION. */
openreg_status openreg_ledger_preview(openreg_ledger_snapshot *snapshot);

/* ---- memory of other processes --------------------------------------------------------------- */

/* Memory and events travel between processes of one group as handles: plain bytes, which may be
 * sent by any means. The bytes of the memory are not copied: importer and exporter use the same
 * pages. A handle is good as long as the exporter lives and has not withdrawn what it stands for;
 * one that is stale, forged, of another group, or of a device that the importer does not see is
 * refused and touches nothing.
 *
 * Who imports memory keeps it, also when the exporter exits or is killed; who is killed lets go of
 * it. The exporter must not use the memory for anything else before openreg_ipc_withdraw said so:
 * it does when no process has the memory and no handle is on its way. A handle that is never opened
 * keeps its memory until the exporter ends.
 *
 * Of an exporter that ended the importers keep what they have; the rest of its memory is given back
 * at once. What one of several importers had that was then killed itself is given back when another
 * one next lets go of something, or ends. */
typedef struct openreg_ipc_handle {
  unsigned char bytes[64];
} openreg_ipc_handle;

/* Makes a handle for memory of this process, to be opened once; it begins at a multiple of 512
 * bytes, as blocks do. Whoever opens it has its stream wait for the work that was submitted to
 * `stream` before, and for that of earlier exports of the range. The same range may be exported
 * again; ranges that overlap otherwise are a programming mistake. Memory that was imported cannot
 * be exported again. Errors: INVALID_ADDRESS, INVALID_ARGUMENT (0 bytes, another beginning, another
 * size than it is exported with already, memory that was imported), OUT_OF_MEMORY (of the host, or
 * more than 32767 ranges and events of a device at a time), BAD_FORK, SYSTEM; and those of
 * openreg_stream_launch. */
openreg_status openreg_ipc_export(void *device_address, size_t bytes, int stream,
                                  openreg_ipc_handle *handle);

/* Asks for an exported range, by its first address, back. OK: it is this process's alone again, and
 * every handle of it is stale. NOT_READY: others have it, or may come to have it.
 * Errors: INVALID_ARGUMENT for what is not exported, BAD_FORK. */
openreg_status openreg_ipc_withdraw(void *device_address);

/* Maps the memory of a handle into this process, on the device that it is on, and makes later
 * work of `stream` of that device wait for the exporter's. Opening handles of the same memory gives
 * the same address, and as many imports. Errors: INVALID_ARGUMENT for a handle that is refused, and
 * for one of this process itself; OUT_OF_MEMORY (of the host, or no addresses left: there are as
 * many as the device has memory, or more), BAD_FORK, SYSTEM; and those of openreg_stream_launch.
 * When the exporter dies before its work is done, the waiting stream fails with LAUNCH_FAILURE. */
openreg_status openreg_ipc_open(const openreg_ipc_handle *handle, int stream, void **device_address,
                                size_t *bytes, int *device);

/* Which device of this process a handle is for, of memory or of an event; its exporter may count it
 * differently. Errors: INVALID_ARGUMENT for bytes that are no handle, and for one of another group
 * or of a device that this process does not see; those of openreg_initialize. */
openreg_status openreg_ipc_device(const openreg_ipc_handle *handle, int *device);

/* For a handle that came back to the process that made it: gives the address of the memory, and
 * counts the handle as opened. NULL for a handle of another process, or what is none.
 * Errors: INVALID_ARGUMENT for a handle of withdrawn memory; those of openreg_initialize. */
openreg_status openreg_ipc_recall(const openreg_ipc_handle *handle, void **device_address);

/* Lets go of one import, by its first address. Work of this process that uses the memory must have
 * finished. Errors: INVALID_ARGUMENT for what is not imported, BAD_FORK, SYSTEM. */
openreg_status openreg_ipc_close(void *device_address);

/* All of a device's memory in another process, of this machine and user, for those who compute on
 * each other's memory: the owner's address `a` is `base + (a - the owner's base of
 * openreg_arena_get)` here, readable and writable by the host. The processes need not be of one
 * group, and the opener need not see the device. Nothing is kept or ordered by it: the owner says
 * by other means which bytes may be touched, and when; its streams are waited for by other means,
 * too. When the owner ends, the bytes stay as they are until the arena is closed. A forked child
 * does not have it. */
typedef struct openreg_peer_arena {
  void *base; /* whole pages; of this process itself: the kernel view */
  size_t bytes;
  int pid;     /* of the owner */
  bool mapped; /* for openreg_ipc_close_arena */
} openreg_peer_arena;

/* The handle may be opened any number of times, while this process lives. Errors: as
 * openreg_arena_get, SYSTEM. */
openreg_status openreg_ipc_export_arena(int device, openreg_ipc_handle *handle);

/* Errors: INVALID_ARGUMENT for a handle that is refused, SYSTEM, and those of openreg_initialize.
 */
openreg_status openreg_ipc_open_arena(const openreg_ipc_handle *handle, openreg_peer_arena *arena);
void openreg_ipc_close_arena(openreg_peer_arena *arena);

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies `bytes` from `source` to `destination`; each may be host memory or in any device's view,
 * and is found out by its address. The ranges must not overlap. Returns when the copy is done.
 * Errors: INVALID_ARGUMENT (NULL with bytes > 0), INVALID_ADDRESS (a range that leaves its arena),
 * BAD_FORK. */
openreg_status openreg_copy(void *destination, const void *source, size_t bytes);

/* Sets `bytes` bytes of device memory. Errors: as openreg_copy; INVALID_ADDRESS for host memory. */
openreg_status openreg_fill(void *destination, int value, size_t bytes);

/* ---- streams --------------------------------------------------------------------------------- */

/* A stream is a queue of work that is done in the order in which it was submitted, side by side
 * with the work of other streams. It is a number: 0 is the default stream of its device, then the
 * pools of 32 streams each, first normal, then high priority. A stream costs nothing until work is
 * queued on it; then it gets a queue, of 64 KiB, and a worker: a thread on its device's cores.
 *
 * Order. Submitting means any of launch, try_begin_inline, recording a timing event and wait_event.
 * Submissions of one thread to one stream are done in the order of the calls, and so are those of
 * several threads of which one call returned before the other began; calls at the same time have
 * no order, but one is done wholly before the other.
 *
 * Memory. Whatever the submitting thread wrote before is visible to the work; whatever the work
 * wrote is visible to later work of the stream, to work that waits for an event behind it, and to
 * a thread that saw it finished: by is_idle, query, synchronize or try_begin_inline.
 *
 * Finished means that the function has returned, not that it was taken from the queue.
 *
 * No cycles. Each wait, in a queue or for room in one, is for work that was submitted before the
 * wait was: an event refers to a point that exists when it is recorded, and recording again does
 * not change the waits of before. So the oldest unfinished work of all streams waits for nobody,
 * and streams cannot wait for each other for ever; only functions can, by waiting themselves.
 *
 * Failures. When a function on a worker fails, its status and its sentence are kept for the device,
 * the first if there are several. The next synchronize of anything on that device, by any thread,
 * gives them back as its own and clears them; the device and its streams go on as before.
 *
 * Blocking. With OPENREG_LAUNCH_BLOCKING=1 all work is done on the submitting thread, in its turn,
 * before the call returns, and the call returns its failure.
 *
 * From within. A function that runs on a worker is its stream, as inline work is (below). It must
 * not submit, nor wait for other streams: that fails with NOT_PERMITTED, unless there is nothing to
 * wait for. */
enum {
  OPENREG_STREAM_DEFAULT = 0,
  OPENREG_STREAMS_PER_POOL = 32,
  OPENREG_STREAMS_PER_DEVICE = 1 + 2 * OPENREG_STREAMS_PER_POOL,
  /* Submissions that may be unfinished, as on CUDA; one more waits until half of them are done. */
  OPENREG_STREAM_QUEUE_LENGTH = 1024,
};

/* The next stream of the device's pool, round robin. priority < 0 is high, as in CUDA.
 * Errors: INVALID_DEVICE. */
openreg_status openreg_stream_from_pool(int device, int priority, int *stream);

/* -1 for streams of the high-priority pool, 0 for others. While work at the head of a high-priority
 * stream has not begun, no function of the device's other streams begins; what runs is not stopped.
 * Where the system permits, workers of high-priority streams get a larger share of their cores.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT for a stream that does not exist. */
openreg_status openreg_stream_priority(int device, int stream, int *priority);

/* The calling thread's current stream on a device; every thread starts with the default stream.
 * Errors: INVALID_DEVICE; of set also INVALID_ARGUMENT for a stream that does not exist. */
openreg_status openreg_stream_current(int device, int *stream);
openreg_status openreg_stream_set_current(int device, int stream);

/* Work. OK, or a failure to be kept for the device: openreg_last_error() holds its sentence. Runs
 * with signals blocked and without any lock of this library. */
typedef openreg_status (*openreg_stream_function)(void *data);

/* Submits function(data), to be called on the stream's worker. `data` is the caller's to keep until
 * then. Allocates nothing but on the stream's first use; waits while the queue is full, so the
 * caller must hold no lock that queued functions need.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT (NULL, or a stream that does not exist), NOT_PERMITTED
 * from a worker or from inline work on the same stream, OUT_OF_MEMORY (of the host), BAD_FORK,
 * SYSTEM; with OPENREG_LAUNCH_BLOCKING=1 also what the function returns. */
openreg_status openreg_stream_launch(int device, int stream, openreg_stream_function function,
                                     void *data);

/* Waits until the stream's queue has room, as launch does, for at most `timeout_ns`: NOT_READY when
 * it still has none, so that a caller can look after signals and call again. Another thread may
 * take the room before the caller does. OK, too, where launch would not wait but be NOT_PERMITTED.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, SYSTEM. */
openreg_status openreg_stream_await_room_for(int device, int stream, uint64_t timeout_ns);

/* Begins work of this thread's own on an idle stream, or answers NOT_READY when the stream is not
 * idle. Between begin and end the thread is the stream: work that others submit is queued behind.
 * To ask is_idle and then work would not do, for another thread may submit in between. A thread may
 * begin on the same stream again, and ends as often; work that is begun must be ended by the same
 * thread. Meanwhile it must not submit to the stream (NOT_PERMITTED), synchronizing the stream
 * means the work before its own, and waiting for other streams is for those that surely do not
 * wait for this one. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, SYSTEM. */
openreg_status openreg_stream_try_begin_inline(int device, int stream);

/* The same on the thread's current stream, which is returned in `stream` by OK and NOT_READY: one
 * call for what each launch asks. Errors: INVALID_DEVICE, BAD_FORK, SYSTEM. */
openreg_status openreg_stream_try_begin_current(int device, int *stream);

/* Ends what either of them began. */
void openreg_stream_end_inline(int device, int stream);

/* Whether another thread does inline work on the stream, with work queued behind it. Memory that
 * the queued work uses and that is freed meanwhile must not go to the inline work, which allocates
 * while it runs: an allocator asks this at each free. For a device and a stream that exist. */
bool openreg_stream_has_inline_ahead(int device, int stream);

/* OK when all work submitted to the stream has finished, NOT_READY otherwise. Does not give back
 * failures. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_stream_query(int device, int stream);

/* The same as two loads, for a device and a stream that are known to exist. */
bool openreg_stream_is_idle(int device, int stream);

/* Waits until the work that was submitted before the call has finished; the variants with a time
 * return NOT_READY when it has not after `timeout_ns`, so that a caller can look after signals and
 * call again. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, NOT_PERMITTED on a worker, and
 * the failure of any work of the device. */
openreg_status openreg_stream_synchronize(int device, int stream);
openreg_status openreg_stream_synchronize_for(int device, int stream, uint64_t timeout_ns);
openreg_status openreg_device_synchronize(int device);
openreg_status openreg_device_synchronize_for(int device, uint64_t timeout_ns);

/* Wait as synchronize does, and leave what work failed with for one: for who reuses or gives back
 * memory. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, NOT_PERMITTED on a worker. */
openreg_status openreg_stream_drain(int device, int stream);
openreg_status openreg_device_drain(int device);

/* Keeps this thread's last failure for the device, which exists, as if work on it had failed so. */
void openreg_device_keep_failure(int device, openreg_status status);

/* For the end of the process: drops what is queued on any stream, as CUDA does, and waits for the
 * functions that run. No worker calls a function after it; dropped work counts as finished, and
 * later launches are done on the submitting thread. The caller must hold no lock that a function
 * which runs may need. On a worker it does not wait; in a forked child it does nothing. */
void openreg_streams_shut_down(void);

/* ---- events ---------------------------------------------------------------------------------- */

/* A point in a stream's work, with the time at which the stream reached it. Owned by the caller. */
typedef struct openreg_event openreg_event;

/* Only events with timing can tell elapsed time; recording one on a busy stream is a submission.
 * Errors: INVALID_DEVICE, OUT_OF_MEMORY (of the host). */
openreg_status openreg_event_create(int device, bool enable_timing, openreg_event **event);

/* The device that it was created for. */
int openreg_event_device(const openreg_event *event);

/* NULL is allowed, and so is an event that was not reached or is waited for: waits are for its
 * points, which belong to the stream. */
void openreg_event_destroy(openreg_event *event);

/* Puts the event behind all work submitted to the stream so far; may be repeated, and then does not
 * change what waits for the event already. From within the stream's own work, inline or on its
 * worker, it comes right behind that work, with the time of the call. Errors: INVALID_ARGUMENT
 * (NULL, or a stream that does not exist), BAD_FORK; of a timing event also those of
 * openreg_stream_launch. */
openreg_status openreg_event_record(openreg_event *event, int stream);

/* OK when the event was reached or was never recorded, NOT_READY otherwise; and waiting for that on
 * the host, as openreg_stream_synchronize does. Errors: INVALID_ARGUMENT (NULL), BAD_FORK; of
 * synchronize also NOT_PERMITTED and the failure of any work of the device. */
openreg_status openreg_event_query(const openreg_event *event);
openreg_status openreg_event_synchronize(const openreg_event *event);
openreg_status openreg_event_synchronize_for(const openreg_event *event, uint64_t timeout_ns);

/* Makes later work of the stream, of whichever device, wait for the event as it is recorded now.
 * Costs nothing when the event was reached or is of the same stream.
 * Errors: as openreg_stream_launch; INVALID_ARGUMENT also for NULL. */
openreg_status openreg_stream_wait_event(int device, int stream, const openreg_event *event);

/* Milliseconds from `start` to `end`. Errors: INVALID_ARGUMENT when either is NULL, was created
 * without timing or was never recorded, or they belong to different devices; NOT_READY when either
 * was not reached yet; BAD_FORK. */
openreg_status openreg_event_elapsed_ms(const openreg_event *start, const openreg_event *end,
                                        double *milliseconds);

/* Makes an event without timing one that other processes have, too, and gives the handle that they
 * import it by, any number of them; may be repeated. Then all of them record it, ask and wait, each
 * on its own streams, and to each the event is as the process that recorded it last did so. Of
 * records at the same time one is the last, for all. What another process recorded on several
 * streams is reached when all its recordings before are, too.
 *
 * Destroying the event makes its handles stale, and leaves it to who imported it: they go on with
 * it, also when the process that created it has ended. It must not be exported while another thread
 * records or exports it. Errors of export: INVALID_ARGUMENT (NULL, an event with timing or one that
 * was imported), OUT_OF_MEMORY as openreg_ipc_export, BAD_FORK, SYSTEM; of an event whose work is
 * not done also those of openreg_stream_launch. Errors of import: as openreg_ipc_open.
 *
 * Recording such an event on a busy stream is a submission, with the errors of one also from within
 * the stream's own work, and OUT_OF_MEMORY (of the host). A process's first record of an event that
 * it imported takes one of its own device's ranges and events, until it destroys the event: errors
 * as of export. Asking and waiting give LAUNCH_FAILURE when the process that recorded last has died
 * before its work was done, until the event is recorded anew; and OUT_OF_MEMORY or SYSTEM when that
 * process's memory file could not be opened, which is done once for each that is met. */
openreg_status openreg_event_export(openreg_event *event, openreg_ipc_handle *handle);
openreg_status openreg_event_import(const openreg_ipc_handle *handle, openreg_event **event);

#ifdef __cplusplus
}
#endif
#endif
