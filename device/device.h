/* device.h: the public interface of the device layer.
 *
 * The layer simulates up to 64 accelerators in ordinary memory. In this file:
 *
 *     configuration               what the environment variables ask for
 *     devices                     counting, initializing and describing them
 *     arenas                      the memory of a device, and its addresses
 *     ledger                      how much memory each process uses
 *     memory of other processes   handles: export and import
 *     copies                      copy and fill
 *
 * streams.h, which this file includes, has streams and events.
 *
 * Each device owns an arena: a memory file that is mapped twice. The program sees addresses of the
 * device view, which the host may not touch. Kernels and copies access the same bytes through the
 * kernel view. The views of all devices lie in two reservations of the same shape, so that for
 * every device
 *
 *     kernel address = device address + openreg_kernel_offset
 *
 * Conventions:
 *
 * - A function that can fail returns an openreg_status. openreg_last_error() has the message.
 * - Results are returned through pointers, which must not be NULL. A function that fails does not
 *   write its results.
 * - All functions may be called from any thread.
 * - Every function that takes a device fails with INVALID_CONFIGURATION while an environment
 *   variable has an invalid value. The comments below do not repeat this.
 *
 * Nothing here depends on PyTorch.
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
  OPENREG_UUID_TEXT_BYTES = 37, /* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" with its final zero */
};

/* The GPU that a device pretends to be. Either a known model, or plain numbers written as 48x1536
 * (multiprocessors x threads), which appear as "openreg 48x1536" with compute capability 8.0. */
typedef struct openreg_profile {
  char key[OPENREG_NAME_BYTES];  /* as in OPENREG_PROFILE: "h100" */
  char name[OPENREG_NAME_BYTES]; /* as torch.cuda.get_device_name returns it: "NVIDIA L4" */
  int multiprocessor_count;
  int max_threads_per_multiprocessor;
  int major, minor; /* compute capability */
  int l2_cache_mib; /* from here on: 0 for a profile given as numbers */
  int clock_mhz, memory_clock_mhz, memory_bus_bits;
  uint64_t memory_bytes;  /* total memory of the real GPU */
  uint64_t context_bytes; /* size of a process's context, see openreg_device_create_context */
} openreg_profile;

typedef struct openreg_config {
  int device_count;                           /* 1 to OPENREG_MAX_DEVICES */
  uint64_t memory_bytes[OPENREG_MAX_DEVICES]; /* capacity, a multiple of 2 MiB */
  openreg_profile profiles[OPENREG_MAX_DEVICES];
  bool launch_blocking;
  bool host_access;
  bool debug_memory;              /* implies launch_blocking */
  bool gpu_overhead;              /* each process has a context on each device it uses */
  char group[OPENREG_NAME_BYTES]; /* OPENREG_GROUP; "" if not set */

  /* Operators and dtypes that the devices lack, separated by commas; "" for none. "aten::svd" means
   * all overloads, "aten::add.Tensor" one. This layer has no operators or dtypes: it only checks
   * the syntax, and the layers above reject what is listed. */
  char block_operators[OPENREG_LIST_BYTES];
  char unsupported_dtypes[OPENREG_LIST_BYTES];
} openreg_config;

/* Fills `config` from OPENREG_DEVICE_COUNT, OPENREG_DEVICE_MEMORY, OPENREG_PROFILE, OPENREG_GROUP,
 * OPENREG_LAUNCH_BLOCKING, OPENREG_HOST_ACCESS, OPENREG_DEBUG_MEMORY, OPENREG_GPU_OVERHEAD,
 * OPENREG_DRY_RUN, OPENREG_BLOCK_OPERATORS and OPENREG_UNSUPPORTED_DTYPES.
 *
 * `lookup` reads a variable (NULL: the process environment). `machine_bytes` is the memory to
 * divide among devices without an explicit capacity (0: this machine's memory). Pure: reads and
 * stores nothing else. Errors: INVALID_CONFIGURATION; the message names variable, value and what is
 * allowed. */
openreg_status openreg_config_read(openreg_getenv lookup, uint64_t machine_bytes,
                                   openreg_config *config);

/* The configuration of this process. The first call reads it; the pointer stays valid until the
 * process ends. Errors: as openreg_config_read, on every call. */
openreg_status openreg_config_get(const openreg_config **config);

/* The known profiles, in the order in which they are listed to users. NULL past the end. */
const openreg_profile *openreg_profile_at(int index);

/* ---- devices --------------------------------------------------------------------------------- */

/* A process sees all configured devices unless OPENREG_VISIBLE_DEVICES is set. That variable
 * selects some of them, in an order, by group index or UUID, as CUDA_VISIBLE_DEVICES does. With
 * OPENREG_DEVICE_TYPE=cuda, CUDA_VISIBLE_DEVICES is read instead. The variables are read once, when
 * devices are first counted or used. Children that are forked later keep this choice.
 *
 * In all functions, `device` is an index among the devices that this process sees, from 0 on. */

/* Number of devices that this process sees; 0 if the environment selects none. Initializes
 * nothing. */
openreg_status openreg_device_count(int *count);

/* Maps the arenas, reads the machine's topology, joins the group and installs the fault handler.
 * The first call does this; later calls are cheap. Functions below call it when they need it, and
 * fail with its errors. Errors: INVALID_CONFIGURATION, INVALID_DEVICE (this process sees no
 * device), BAD_FORK, OUT_OF_MEMORY (of the host, or too many processes in the group), SYSTEM. */
openreg_status openreg_initialize(void);
bool openreg_is_initialized(void);

/* True in a child that was forked after its parent initialized devices. Such a child has no
 * devices: functions that access memory or wait for work fail with BAD_FORK. The addresses of the
 * parent's devices stay reserved, and accesses to them fault. */
bool openreg_in_bad_fork(void);
/* Returns BAD_FORK, with its error message, in such a child; else OK. */
openreg_status openreg_require_no_bad_fork(void);

/* The calling thread's current device, initially 0. Neither function initializes anything. Errors
 * of set: INVALID_DEVICE. */
int openreg_device_current(void);
openreg_status openreg_device_set_current(int device);

typedef struct openreg_device_properties {
  openreg_profile profile;
  uint64_t total_memory_bytes; /* capacity of the simulated device */
  int group_index;             /* in openreg_config and snapshots; the same in all processes */
  unsigned char uuid[OPENREG_UUID_BYTES];
  /* Placement on this machine, or on the machine that HWLOC_SYNTHETIC or HWLOC_XMLFILE describes.
   * Memory and workers are bound only if it is this machine, and only if the system permits it. */
  int numa_node;    /* hwloc's OS index of the first NUMA node of the cores; -1: unknown */
  char cpuset[256]; /* hwloc's list of cores, such as "0-3", cut after a whole range; "": unknown */
} openreg_device_properties;

/* Errors: INVALID_DEVICE, BAD_FORK, INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_device_get_properties(int device, openreg_device_properties *properties);

/* Computes the UUID of a device. It depends only on the user, the group and the group index, so
 * every process of the group computes the same UUID at any time. Pure. `group` is the name that
 * snapshots show. */
void openreg_device_make_uuid(const char *group, int group_index,
                              unsigned char uuid[OPENREG_UUID_BYTES]);
void openreg_device_write_uuid(const unsigned char uuid[OPENREG_UUID_BYTES],
                               char text[OPENREG_UUID_TEXT_BYTES]);

/* The simulated PCI bus of a device, 1 to 64. Its full address is domain 0, this bus, device 0. */
static inline int openreg_device_pci_bus(int group_index) {
  return group_index + 1;
}

/* Whether kernels and copies of `device` can access the memory of `peer`. True for every pair of
 * different devices and false for a device and itself, as CUDA reports. Errors: INVALID_DEVICE. */
openreg_status openreg_device_can_access_peer(int device, int peer, bool *can_access);

/* Creates this process's context on the device if it has none. A context stands for the memory that
 * a GPU driver needs for each process. With OPENREG_GPU_OVERHEAD=1 it uses profile.context_bytes of
 * the device's capacity, from the first use of the device until the process ends. Otherwise there
 * are no contexts and this does nothing.
 *
 * Functions below that access a device's memory or submit work call this, and fail with its errors.
 * Errors: INVALID_DEVICE, OUT_OF_MEMORY (the context does not fit), and those of
 * openreg_initialize. */
openreg_status openreg_device_create_context(int device);

/* Whether this process has used the device: then it has a context there, also without
 * OPENREG_GPU_OVERHEAD=1. False for an invalid device. */
bool openreg_device_has_context(int device);

/* Binds the calling thread to the cores of the device; with -1, to all cores that the process was
 * allowed to use when it initialized. Does nothing before initialization, or if the system
 * refuses. */
void openreg_device_bind_thread(int device);

/* ---- arenas ---------------------------------------------------------------------------------- */

/* kernel address - device address, the same for all devices. openreg_initialize sets it once; 0
 * with OPENREG_HOST_ACCESS=1. */
extern intptr_t openreg_kernel_offset;

static inline void *openreg_kernel_view(const void *device_address) {
  return (void *)((intptr_t)device_address + openreg_kernel_offset);
}
static inline void *openreg_device_view(const void *kernel_address) {
  return (void *)((intptr_t)kernel_address - openreg_kernel_offset);
}

/* The device view of the whole arena: [base, base + bytes). `base` is aligned to 2 MiB. `bytes` is
 * at least twice the capacity: the ledger limits how much of it is used, and the allocator decides
 * where. Errors: INVALID_DEVICE, BAD_FORK, INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_arena_get(int device, void **base, size_t *bytes);

/* The device whose device view contains the address; -1 for any other address. Initializes nothing.
 * Costs two comparisons and a shift. */
int openreg_arena_device_of(const void *device_address);

/* Returns the pages of a range to the system. The range reads as zeros afterwards. Start and size
 * must be multiples of the page size, and the range must lie in one arena (device view). Errors:
 * INVALID_ARGUMENT, INVALID_ADDRESS, BAD_FORK, SYSTEM. */
openreg_status openreg_arena_release(void *device_address, size_t bytes);

/* ---- ledger: how much memory each process uses ----------------------------------------------- */

/* As with a GPU, the capacity of a device is shared by all processes on the machine: here, by the
 * processes of one user in one group. The group is OPENREG_GROUP or, if that is not set, all
 * processes with the same configuration. A process holds what it has reserved until it releases it
 * or ends, in whatever way.
 *
 * The group's control file (2.0 MB, in /dev/shm/openreg-<user>) is removed with the last process.
 * If that process was killed, the file stays until a process joins or lists groups. */
enum {
  OPENREG_MAX_PROCESSES = 1024,   /* in a group at one time */
  OPENREG_GROUP_NAME_BYTES = 128, /* size of a group's name in messages and function arguments */
};

/* Reserves `bytes` of the device's capacity. If they do not fit, fails with OUT_OF_MEMORY and
 * reserves nothing. Other errors: as openreg_arena_get; NOT_PERMITTED while the process is
 * ending. */
openreg_status openreg_ledger_reserve(int device, uint64_t bytes);

/* Releases reserved bytes. Releasing more than was reserved is a programming error. */
void openreg_ledger_release(int device, uint64_t bytes);

/* Returns the unreserved bytes and the capacity. Errors: as openreg_arena_get; NOT_PERMITTED while
 * the process is ending. */
openreg_status openreg_ledger_query(int device, uint64_t *free_bytes, uint64_t *total_bytes);

/* Leaves the group and releases what the process has reserved, as the end of the process does. For
 * processes that end without running destructors. Does nothing if the process has not joined. */
void openreg_leave_group(void);

/* State of one device in a snapshot of a group. */
typedef struct openreg_ledger_device {
  char profile[OPENREG_NAME_BYTES]; /* openreg_profile.key and .name */
  char name[OPENREG_NAME_BYTES];
  unsigned char uuid[OPENREG_UUID_BYTES];
  int multiprocessor_count, major, minor; /* of the profile; 0 if this version does not know it */
  uint64_t total_bytes, used_bytes;
  int busy_percent; /* recent utilization, 0 to 100; -1: not known yet */
  int numa_node;    /* as in openreg_device_properties of the group's first process */
  char cpuset[256];
} openreg_ledger_device;

typedef struct openreg_ledger_process {
  int pid;
  bool has_exited;               /* ended, but other processes still use memory that it exported */
  int64_t started_ns;            /* CLOCK_REALTIME when the process initialized devices */
  char name[OPENREG_NAME_BYTES]; /* command line, truncated */
  uint64_t bytes[OPENREG_MAX_DEVICES];
} openreg_ledger_process;

typedef struct openreg_ledger_snapshot {
  char group[OPENREG_GROUP_NAME_BYTES];
  int device_count, process_count;
  openreg_ledger_device devices[OPENREG_MAX_DEVICES];
  openreg_ledger_process *processes; /* ordered by start time; owned by the snapshot */
} openreg_ledger_snapshot;

/* Utilization (busy_percent) is the time in which the device's streams ran work, divided by the
 * time since an earlier sample. Each query of utilization takes a sample. The earlier sample is the
 * latest one that is at least a second old, taken by any process. If there is none, it is the first
 * sample, provided that it is at least a tenth of a second old. Times of concurrent streams are
 * added, up to 100 %.
 *
 * Work on workers is always counted. Inline work is counted only for ten seconds after each sample,
 * because counting it costs time; work that began before the sample is not counted. */

/* Takes snapshots of all groups of this user that have processes, ordered by name. Does not depend
 * on this process's configuration, initializes nothing and joins no group. Reclaims what dead
 * processes had reserved. The caller frees the array with openreg_ledger_free_snapshots.
 *
 * A control file that is corrupt, or that a stopped process has kept locked for a second, is
 * skipped and described in `problem` (NULL: none; valid until this thread's next call). Process
 * names may contain any bytes except control characters. Errors: SYSTEM, OUT_OF_MEMORY (of the
 * host). */
openreg_status openreg_ledger_list(openreg_ledger_snapshot **snapshots, int *count,
                                   const char **problem);
void openreg_ledger_free_snapshots(openreg_ledger_snapshot *snapshots, int count);

/* Takes a snapshot of this process's own group; free it as a list of one. Samples utilization only
 * if `with_utilization` is set. Returns NOT_READY if the group has no processes. Errors:
 * INVALID_CONFIGURATION (also for problems that openreg_ledger_list would describe), SYSTEM,
 * OUT_OF_MEMORY (of the host). */
openreg_status openreg_ledger_find_own(bool with_utilization, openreg_ledger_snapshot **snapshot);

/* The snapshot that this process's group would have without processes: the configured devices with
 * their placement, all free. Allocates and initializes nothing. Errors: INVALID_CONFIGURATION. */
openreg_status openreg_ledger_preview(openreg_ledger_snapshot *snapshot);

/* ---- memory of other processes --------------------------------------------------------------- */

/* Processes of one group pass memory and events to each other as handles: plain bytes, which may be
 * sent by any means. The memory is not copied: importer and exporter use the same pages. A handle
 * is valid while the exporter lives and has not withdrawn the memory or destroyed the event. A
 * handle that is stale, forged, of another group, or of a device that the importer does not see is
 * rejected and has no effect.
 *
 * Importers keep imported memory even if the exporter exits or is killed. A process that is killed
 * loses its imports. The exporter must not reuse the memory before openreg_ipc_withdraw succeeds,
 * which requires that no process has the memory and no handle is in transit. A handle that nobody
 * opens keeps its memory until the exporter ends.
 *
 * When an exporter ends, its importers keep what they imported, and the rest of its memory is
 * returned to the system at once. If one of several importers is killed after that, its share is
 * returned when another importer closes an import or ends. */
typedef struct openreg_ipc_handle {
  unsigned char bytes[64];
} openreg_ipc_handle;

/* Makes a handle for memory of this process. Each handle is to be opened once. `device_address`
 * must be a multiple of 512, as all blocks are. The importer's stream waits for work submitted to
 * `stream` so far, and for the work of earlier exports of the range.
 *
 * A range may be exported several times, with the same start and size. Ranges that overlap in any
 * other way are a programming error. Imported memory cannot be exported. Errors: INVALID_ADDRESS,
 * INVALID_ARGUMENT (0 bytes, misaligned, exported already with another size, imported),
 * OUT_OF_MEMORY (of the host, or more than 32767 exported ranges and events of a device), BAD_FORK,
 * SYSTEM, and those of openreg_stream_launch. */
openreg_status openreg_ipc_export(void *device_address, size_t bytes, int stream,
                                  openreg_ipc_handle *handle);

/* Ends the export of the range that starts at `device_address`. OK: the range belongs to this
 * process alone again, and all its handles are stale. NOT_READY: other processes have it or may
 * still open it. Errors: INVALID_ARGUMENT (not exported), BAD_FORK. */
openreg_status openreg_ipc_withdraw(void *device_address);

/* Maps the memory of a handle into this process, on the device it belongs to. Later work on
 * `stream` of that device waits for the exporter's work. Opening further handles of the same memory
 * returns the same address; close it as often as it was opened.
 *
 * If the exporter dies before its work has finished, the waiting stream fails with LAUNCH_FAILURE.
 * Errors: INVALID_ARGUMENT (handle rejected, or made by this process), OUT_OF_MEMORY (of the host,
 * or no addresses left; imports may use at least as many addresses as the device has memory),
 * BAD_FORK, SYSTEM, and those of openreg_stream_launch. */
openreg_status openreg_ipc_open(const openreg_ipc_handle *handle, int stream, void **device_address,
                                size_t *bytes, int *device);

/* The device of this process that a handle of memory or of an event refers to. The exporter may use
 * another index for it. Errors: INVALID_ARGUMENT (not a handle, another group, or a device that
 * this process does not see), and those of openreg_initialize. */
openreg_status openreg_ipc_device(const openreg_ipc_handle *handle, int *device);

/* For a handle that returned to the process that made it: returns the address of the memory and
 * counts the handle as opened. Returns NULL for other bytes and for handles of other processes.
 * Errors: INVALID_ARGUMENT (the memory was withdrawn), and those of openreg_initialize. */
openreg_status openreg_ipc_recall(const openreg_ipc_handle *handle, void **device_address);

/* Closes one import of the memory that starts at `device_address`. Work of this process that uses
 * the memory must have finished. Errors: INVALID_ARGUMENT (not imported), BAD_FORK, SYSTEM. */
openreg_status openreg_ipc_close(void *device_address);

/* The whole arena of a device of another process of this machine and user, for processes that
 * compute on each other's memory. The owner's address `a` is `base + (a - owner's base of
 * openreg_arena_get)` here. The host may read and write it. The processes may be in different
 * groups, and the opener need not see the device.
 *
 * This neither keeps memory alive nor orders work: the processes must agree by other means on which
 * bytes they touch and when. If the owner ends, the bytes stay unchanged until the arena is closed.
 * A forked child does not inherit the mapping. */
typedef struct openreg_peer_arena {
  void *base; /* multiple of the page size; for an arena of this process: the kernel view */
  size_t bytes;
  int pid;     /* of the owner */
  bool mapped; /* internal: openreg_ipc_close_arena unmaps it */
} openreg_peer_arena;

/* Makes a handle for the arena of a device. It may be opened any number of times while this process
 * lives. Errors: as openreg_arena_get; SYSTEM. */
openreg_status openreg_ipc_export_arena(int device, openreg_ipc_handle *handle);

/* Opens an arena, or closes it. Errors: INVALID_ARGUMENT (handle rejected), SYSTEM, and those of
 * openreg_initialize. */
openreg_status openreg_ipc_open_arena(const openreg_ipc_handle *handle, openreg_peer_arena *arena);
void openreg_ipc_close_arena(openreg_peer_arena *arena);

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies `bytes` bytes. Source and destination may each be host memory or device memory (device
 * view); their addresses decide. The ranges must not overlap. Returns when the copy is done.
 * Errors: INVALID_ARGUMENT (NULL with bytes > 0), INVALID_ADDRESS (a range crosses the end of an
 * arena), BAD_FORK. */
openreg_status openreg_copy(void *destination, const void *source, size_t bytes);

/* Sets `bytes` bytes of device memory to `value`. Errors: as openreg_copy; INVALID_ADDRESS for host
 * memory. */
openreg_status openreg_fill(void *destination, int value, size_t bytes);

#ifdef __cplusplus
}
#endif

#include "device/streams.h"

#endif
