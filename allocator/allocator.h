/* allocator.h: the whole contract of the caching allocators: device memory, and pinned host memory.
 *
 * One allocator a device, over that device's arena. Its policy is that of PyTorch's CUDA caching
 * allocator, so that the same requests have the same figures, the same segments and blocks, and run
 * out of memory at the same request as on a GPU (allocator.c tells the policy). The allocator works
 * on addresses only and never touches the memory behind them, but for OPENREG_DEBUG_MEMORY=1.
 *
 * Thread-safe throughout. Errors are device.h's, as are those of OPENREG_DEVICE_COUNT and the like:
 * INVALID_CONFIGURATION wherever a device is named. In a process forked after initialization
 * nothing works but pinned memory, and nothing blocks: what returns a status fails with BAD_FORK.
 */
#ifndef OPENREG_ALLOCATOR_H
#define OPENREG_ALLOCATOR_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- figures --------------------------------------------------------------------------------- */

typedef struct openreg_stat {
  int64_t current, peak, allocated, freed; /* allocated and freed accumulate */
} openreg_stat;

/* Microseconds spent in `count` calls. The shortest and the longest are peaks: 0 before any. */
typedef struct openreg_duration {
  int64_t total, max, min, count;
} openreg_duration;

enum { OPENREG_POOL_ALL, OPENREG_POOL_SMALL, OPENREG_POOL_LARGE, OPENREG_POOL_KINDS };

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A piece of device memory. The fields shown are constant while the block is allocated, except
 * `user`, which belongs to whoever holds the block: NULL when allocated, never read here. */
typedef struct openreg_block {
  void *address; /* device view, 512-byte aligned; NULL for a block of 0 bytes */
  size_t bytes;  /* all of it: requested_bytes rounded up, and what was not split off */
  size_t requested_bytes;
  void *user;
  int32_t device;
  int32_t stream;
} openreg_block;

/* Allocates for use on `stream`. A request that does not fit is tried again after the device's
 * cached memory was given back. A request of 0 bytes gives a block with no address that counts as
 * nothing. Errors: INVALID_DEVICE, INVALID_ARGUMENT (stream), OUT_OF_MEMORY (the state is as
 * before but for the emptied cache; openreg_memory_last_refusal tells the figures), BAD_FORK,
 * INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block);

/* Gives a block back. Ownership passes; NULL is allowed. In a forked process it does nothing, since
 * the memory is the parent's. Giving back twice is a programming mistake. */
void openreg_block_free(openreg_block *block);

/* The figures of a request that did not fit, for a sentence in CUDA's words. */
typedef struct openreg_memory_refusal {
  size_t bytes;         /* as requested */
  size_t rounded_bytes; /* of its block */
  size_t tried_bytes;   /* of its segment */
  uint64_t free_bytes, capacity_bytes;
  uint64_t allowed_bytes; /* the limit; UINT64_MAX for none */
  uint64_t allocated_bytes, reserved_bytes;
  uint64_t mempool_bytes; /* free memory of private pools */
  bool is_rejection;      /* by throws_on_oom */
} openreg_memory_refusal;

/* Of the calling thread's last request that was refused with OUT_OF_MEMORY. */
void openreg_memory_last_refusal(openreg_memory_refusal *refusal);

/* The allocated block that starts at `address`, or NULL; constant time. Does not take ownership. */
openreg_block *openreg_block_find(const void *address);

/* Says that work on `stream` also uses the block: its memory is not used again before that work is
 * done. The block's own stream and blocks of 0 bytes need nothing. Errors: INVALID_ARGUMENT,
 * BAD_FORK. */
openreg_status openreg_block_record_stream(openreg_block *block, int stream);

/* ---- memory straight from the device --------------------------------------------------------- */

/* What cudaMalloc gives: memory of a device that no allocator caches or counts; multiples of 2 MiB
 * of it. Errors: INVALID_DEVICE, INVALID_ARGUMENT (NULL, 0 bytes), OUT_OF_MEMORY, BAD_FORK,
 * INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_device_malloc(int device, size_t bytes, void **address);

/* Gives it back by its first address when the device's work is done; waits for that, as cudaFree
 * does. NULL is allowed. Errors: INVALID_ARGUMENT for what is not of openreg_device_malloc,
 * NOT_PERMITTED on a worker, BAD_FORK, SYSTEM. */
openreg_status openreg_device_free(void *address);

/* Functions of the program that memory is had from in the place of the device. They are called
 * without any lock, by the thread that needs memory, or from which some is not needed any more.
 * `allocate` gives at least `bytes` of the device's memory from openreg_device_malloc or in an
 * allocated block, in multiples of 512 bytes from the beginning of that, or NULL, for none is left.
 * `free` gets what `allocate` gave and was told. Both must work for as long as there is such
 * memory. */
typedef struct openreg_memory_source {
  void *(*allocate)(void *context, size_t bytes, int device, int stream);
  void (*free)(void *context, void *address, size_t bytes, int device, int stream);
  void *context;
} openreg_memory_source;

/* Has each block of every device come from a source, and go back to it: none is kept or counted.
 * NULL ends that. Errors: INVALID_ARGUMENT for half a source, NOT_PERMITTED when the devices were
 * initialized, BAD_FORK. */
openreg_status openreg_memory_set_source(const openreg_memory_source *source);

/* ---- memory pools ---------------------------------------------------------------------------- */

/* A memory pool, as torch.cuda.MemPool, is a number: what is allocated in it never shares a segment
 * with what is not, on any device. 0 is the pool of everything else. Numbers are not used again. */

/* How a pool is made: any of these. */
enum {
  /* A request of pool 0 that does not fit anywhere else is served from memory that is free in this
   * pool for its stream; the block then belongs to this pool. */
  OPENREG_MEMPOOL_USE_ON_OOM = 1,
  /* A block is never split: each is a segment, and a request gets the smallest free one of its
   * stream that is long enough. */
  OPENREG_MEMPOOL_NO_SPLIT = 2,
};

/* Makes a pool that has one user, with memory from `source`, or for NULL from the device. Errors:
 * INVALID_ARGUMENT (NULL, other bits, half a source), OUT_OF_MEMORY (of the host), BAD_FORK. */
openreg_status openreg_mempool_create(unsigned how, const openreg_memory_source *source,
                                      uint64_t *mempool);

/* A number for a pool that is made when it gets its first user. Errors: INVALID_ARGUMENT (NULL),
 * BAD_FORK. */
openreg_status openreg_mempool_name(uint64_t *mempool);

/* One more user, who keeps the pool. Of a number without a pool it makes one. Errors:
 * INVALID_ARGUMENT for a number that was never given out, OUT_OF_MEMORY (of the host), BAD_FORK. */
openreg_status openreg_mempool_retain(uint64_t mempool);

/* One user less. After the last a pool's free memory is given back by openreg_mempool_empty, or
 * with the cache of its device; so is what is allocated in it, when it was freed. A thread whose
 * current pool it is goes on to allocate there; to all functions here but openreg_mempool_empty and
 * _retain it does not exist any more. Errors: INVALID_ARGUMENT for one that does not exist or is 0,
 * BAD_FORK. */
openreg_status openreg_mempool_release(uint64_t mempool);

/* How many users it has: 0 for one that does not exist. */
int64_t openreg_mempool_use_count(uint64_t mempool);

/* The pool that the calling thread allocates in on a device; every thread starts with 0.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT for a pool that does not exist. */
openreg_status openreg_mempool_current(int device, uint64_t *mempool);
openreg_status openreg_mempool_set_current(int device, uint64_t mempool);

typedef struct openreg_mempool_stats {
  uint64_t mempool;
  openreg_stat reserved_bytes[OPENREG_POOL_KINDS];
} openreg_mempool_stats;

/* What each pool but 0 has reserved of a device, for all that ever allocated there; of one that is
 * gone `current` is 0. An array that is the caller's, to be freed with free(); NULL for none.
 * openreg_memory_reset_peak and the like reset these too.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, OUT_OF_MEMORY (of the host). */
openreg_status openreg_mempool_get_stats(int device, openreg_mempool_stats **stats, size_t *count);

/* As openreg_cache_empty, for one pool only that was destroyed, on all devices that were used; the
 * memory of others is kept. When it fails on a device it goes on with the next, and gives back the
 * first failure. Errors: INVALID_ARGUMENT, BAD_FORK, NOT_PERMITTED on a worker, SYSTEM. */
openreg_status openreg_mempool_empty(uint64_t mempool);

/* The allocated blocks of a pool other than 0 on one device, by address: an array that is the
 * caller's, to be freed with free(); the blocks stay whose they are. NULL for none.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, OUT_OF_MEMORY (of the host). */
openreg_status openreg_mempool_blocks(int device, uint64_t mempool, openreg_block ***blocks,
                                      size_t *count);

/* How a pool's segments on a device were cut into blocks, and which of these were allocated. */
typedef struct openreg_mempool_checkpoint openreg_mempool_checkpoint;

/* To be freed with free(). Errors: as openreg_mempool_blocks. */
openreg_status openreg_mempool_take_checkpoint(int device, uint64_t mempool,
                                               openreg_mempool_checkpoint **checkpoint);

/* Makes the pool what it was: the blocks that were allocated then are so again, at the same
 * addresses, and are the caller's: `blocks` is as of openreg_mempool_blocks. Those that still are,
 * or are again, stay as they are, and others may not be allocated; what was reserved since stays
 * free, and what was then must still be there. Waits for streams that use what was freed.
 * Errors: also NOT_PERMITTED, which changes nothing. */
openreg_status openreg_mempool_restore(const openreg_mempool_checkpoint *checkpoint,
                                       openreg_block ***blocks, size_t *count);

/* ---- memory of other processes --------------------------------------------------------------- */

/* device.h's handles, for blocks. */

/* A handle by which one other process can import the block; work submitted to the block's stream
 * and to `stream` is waited for there: to that end later work of `stream` comes after what is
 * submitted to the block's. When the block is freed it stays allocated, in all figures, until no
 * other process has it. Errors: as openreg_ipc_export; INVALID_ARGUMENT also for a block of 0
 * bytes, and NOT_PERMITTED for one that was imported. */
openreg_status openreg_block_export(openreg_block *block, int stream, openreg_ipc_handle *handle);

/* A block over the memory of another process, for use on `stream`; `bytes` and requested_bytes are
 * those of the exporter's block. It counts in no statistic and is told to no observer, for the
 * exporter has it; openreg_block_find takes time that grows with the number of imports, and gives
 * one of several of the same memory. Freeing it lets go of the memory, once this process's streams
 * have finished what may use it. Errors: as openreg_ipc_open. */
openreg_status openreg_block_import(const openreg_ipc_handle *handle, int stream,
                                    openreg_block **block);
bool openreg_block_is_imported(const openreg_block *block);

/* Looks after freed blocks that other processes had, and imports that streams still used: those
 * that are done with are given back. Requests that would reserve memory, exports and emptying the
 * cache do so by themselves.
 * Errors: INVALID_DEVICE, BAD_FORK. */
openreg_status openreg_memory_collect(int device);

/* ---- the cache ------------------------------------------------------------------------------- */

/* Gives the segments that are one free block back to the system, ledger and pages; of expandable
 * ones the free pages; waits for the device's work where it must. Memory pools keep theirs until
 * they are destroyed, and streams may keep theirs to which other threads submit all the while. A
 * device that was never used is left alone.
 * Errors: INVALID_DEVICE, BAD_FORK, NOT_PERMITTED on a worker, SYSTEM. */
openreg_status openreg_cache_empty(int device);

/* At most `fraction` (0 to 1) of the device's capacity may be reserved by this process; 1 is no
 * limit. What is reserved already stays. As set by the settings for a device that was never used.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK; of set also SYSTEM. */
openreg_status openreg_memory_set_fraction(int device, double fraction);
openreg_status openreg_memory_get_fraction(int device, double *fraction);

/* What PYTORCH_ALLOC_CONF sets, of all devices. */
enum { OPENREG_ROUNDUP_INTERVALS = 16 };
typedef struct openreg_memory_settings {
  size_t max_split_bytes; /* blocks of this size and more are not split; SIZE_MAX: all are */
  size_t max_non_split_rounding_bytes; /* how much longer such a block may be than its request */
  size_t large_segment_bytes;          /* of requests above 1 MiB and below 10; and a page of
                                        * expandable segments of the large pool */
  /* Steps between two powers of two that sizes are rounded up to; 0 and 1: multiples of 512 bytes.
   * By the size: up to 2 MiB, 2 to 4 MiB, ... 32 GiB and more. */
  size_t roundup_power2_divisions[OPENREG_ROUNDUP_INTERVALS];
  double garbage_collection_threshold; /* of the limit; 0: none is collected */
  /* The limit of devices that are first used after this; and what throws_on_oom compares with. */
  double memory_fraction;
  bool expandable_segments;
  bool is_cache_off;  /* each block is had from the device and given back to it, and not counted */
  bool throws_on_oom; /* a request is refused at once, if its segment passes that limit */
} openreg_memory_settings;

/* Errors: INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_memory_set_settings(const openreg_memory_settings *settings);
void openreg_memory_get_settings(openreg_memory_settings *settings);

/* ---- statistics ------------------------------------------------------------------------------ */

/* X(name): the statistics that exist for each kind of pool. The names are CUDA's. The small pool
 * holds requests of up to 1 MiB. Names that end in _bytes are sums, the others counts. */
/* clang-format off */
#define OPENREG_MEMORY_STAT_LIST(X)                                                 \
  X(allocation)           /* blocks the program holds */                         \
  X(segment)              /* but expandable ones */                              \
  X(active)               /* blocks held, or still in use by a stream */         \
  X(inactive_split)       /* free blocks that are a part of a segment; the same */ \
  X(allocated_bytes)                                                             \
  X(reserved_bytes)                                                              \
  X(active_bytes)                                                                \
  X(inactive_split_bytes)                                                        \
  X(requested_bytes)
/* clang-format on */

typedef struct openreg_memory_stats {
#define X(name) openreg_stat name[OPENREG_POOL_KINDS];
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
  openreg_stat oversize_allocations, oversize_segments; /* of max_split_bytes and more */
  int64_t alloc_retries;  /* times the cache was emptied to satisfy a request */
  int64_t ooms;           /* requests that failed all the same */
  int64_t oom_rejections; /* of these, such as the device was not asked for */
  int64_t device_allocs;  /* segments made, and mappings of expandable ones */
  int64_t device_frees;   /* and ended */
  int64_t stream_syncs;   /* times all events were waited for, to give memory back */
  size_t max_split_bytes; /* as set when the device was first used; SIZE_MAX for none */
} openreg_memory_stats;

/* One consistent picture. All memory pools are counted together. Zeros for a device that was not
 * used.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_memory_get_stats(int device, openreg_memory_stats *stats);

/* Sets peaks to the current values; sets accumulated sums and counters to zero.
 * Errors: INVALID_DEVICE, BAD_FORK. */
openreg_status openreg_memory_reset_peak(int device);
openreg_status openreg_memory_reset_accumulated(int device);

/* ---- what happens, and what there is --------------------------------------------------------- */

typedef enum openreg_memory_action {
  OPENREG_MEMORY_ALLOCATED,      /* the block became the program's */
  OPENREG_MEMORY_FREE_REQUESTED, /* the program gave it back, and no other process has it */
  OPENREG_MEMORY_FREE_COMPLETED, /* no stream uses it any more */
  OPENREG_MEMORY_SEGMENT_ALLOCATED,
  OPENREG_MEMORY_SEGMENT_FREED,
  OPENREG_MEMORY_SEGMENT_MAPPED, /* pages of an expandable segment */
  OPENREG_MEMORY_SEGMENT_UNMAPPED,
  OPENREG_MEMORY_EXHAUSTED, /* a request failed: `address` is the bytes free on the device */
} openreg_memory_action;

typedef struct openreg_memory_event {
  openreg_memory_action action;
  int device;
  int stream;
  uintptr_t address;
  size_t bytes; /* of a block as requested; of EXHAUSTED as rounded up */
  uint64_t mempool;
} openreg_memory_event;

/* Called for everything that happens from then on, in its order for each device, by the thread that
 * does it, with that device's lock held: it must not call this library, nor wait for whoever does.
 * Blocks of 0 bytes are nothing. One observer at a time; NULL for none. The one before is not being
 * called any more when this returns. Does nothing in a forked process. */
typedef void (*openreg_memory_observer)(const openreg_memory_event *event);
void openreg_memory_observe(openreg_memory_observer observer);

typedef struct openreg_block_info {
  uintptr_t address;
  size_t bytes, requested_bytes; /* requested: 0 for free memory */
  enum { OPENREG_BLOCK_FREE, OPENREG_BLOCK_ALLOCATED, OPENREG_BLOCK_AWAITING_FREE } state;
} openreg_block_info;

typedef struct openreg_segment_info {
  uintptr_t address;
  size_t bytes, allocated_bytes, active_bytes, requested_bytes;
  int stream;
  int kind; /* OPENREG_POOL_SMALL or OPENREG_POOL_LARGE */
  bool is_expandable;
  uint64_t mempool;
  size_t first_block, block_count; /* in openreg_memory_snapshot.blocks */
} openreg_segment_info;

/* All segments of a device by address, then those of sources, each with its blocks, which cover it.
 * Of an expandable one each mapped part is a segment. */
typedef struct openreg_memory_snapshot {
  openreg_segment_info *segments;
  openreg_block_info *blocks;
  size_t segment_count, block_count;
} openreg_memory_snapshot;

/* One consistent picture, to be freed with openreg_memory_free_snapshot (NULL and freed ones are
 * allowed); empty for a device that was not used, or when it fails for the host's lack of memory.
 * Imports are not shown. Errors: INVALID_DEVICE, INVALID_ARGUMENT (NULL), BAD_FORK, OUT_OF_MEMORY
 * (of the host). */
openreg_status openreg_memory_take_snapshot(int device, openreg_memory_snapshot *snapshot);
void openreg_memory_free_snapshot(openreg_memory_snapshot *snapshot);

/* ---- OPENREG_DEBUG_MEMORY=1 ------------------------------------------------------------------ */

/* Fresh memory is full of one pattern and freed memory of another; behind each block lies a red
 * zone of its own pattern. Zones are looked at when a block is freed, free memory when it is used
 * again or given back, and all of it by openreg_memory_check. Every launch finishes before it
 * returns. A block is 512 bytes longer, which count in all figures but the requested ones. What is
 * damaged is mended, so that it is told once. What reads too far is not found, nor what writes past
 * the zone into another block; memory of other processes is not watched here. */
enum {
  OPENREG_DEBUG_FRESH = 0xFF, /* NaN as a number of any width, -1 as an integer */
  OPENREG_DEBUG_FREED = 0xFD,
  OPENREG_DEBUG_ZONE = 0xFB,
  OPENREG_DEBUG_STACK_FRAMES = 32,
};

/* What was found. Its sentence is written to stderr, with the stack of the allocation, and is kept
 * as a failure of the device, which the next synchronization gives back. */
typedef enum openreg_memory_damage {
  OPENREG_DAMAGE_OVERFLOW,       /* written behind the end of an allocated block */
  OPENREG_DAMAGE_USE_AFTER_FREE, /* written to freed memory */
} openreg_memory_damage;

/* What makes stacks of the program in the place of the C library's, whose frames are addresses.
 * `capture` is called before each allocation, without any lock, and returns what `describe` makes
 * text of, allocated with malloc, or NULL; `drop` when the memory is someone else's. These two are
 * called without lock, too, and go on to be for what their `capture` made when others are set. NULL
 * for none. */
typedef struct openreg_memory_stacks {
  void *(*capture)(void);
  char *(*describe)(void *stack);
  void (*drop)(void *stack);
} openreg_memory_stacks;
void openreg_memory_set_stacks(const openreg_memory_stacks *stacks);

/* Looks at all red zones and all freed memory of a device now. OK, or the first damage as
 * LAUNCH_FAILURE with its sentence; all are written to stderr, and none is kept besides. Does
 * nothing without OPENREG_DEBUG_MEMORY=1.
 * Other errors: INVALID_DEVICE, BAD_FORK. */
openreg_status openreg_memory_check(int device);

/* Walks every structure of a device's allocator and checks its invariants: for tests.
 * Returns false and records the sentence when one is broken, or the device cannot be looked at. */
bool openreg_memory_is_valid(int device);

/* ---- pinned host memory ---------------------------------------------------------------------- */

/* Host memory for copies to and from devices. On a GPU it is locked in place so that the device can
 * reach it while the host works on. A simulated device reaches all memory of its process, so here
 * "pinned" says that the memory came from this pool, which knows it again by its address; nothing
 * is locked, and pages are committed when they are first touched.
 *
 * As in CUDA's caching host allocator, sizes are rounded up to powers of two, but for what the
 * settings say, and blocks are never cut or merged. A freed block is used again, whatever it then
 * holds, by requests of its rounded size; where sizes are not rounded, by requests between the same
 * powers of two that it is long enough for. Freeing does not wait: work that uses the block must
 * have finished.
 *
 * The pool belongs to no device and initializes none. It also works in a forked process, whatever
 * was initialized before: that has its own copy of every block, and may free what it inherited. */

/* Allocates page-aligned memory; new memory is zeroed. 0 bytes have no address (NULL) and count as
 * nothing. When the host has none left, cached blocks are given back and it is tried again.
 * Errors: INVALID_ARGUMENT (NULL), OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_pinned_allocate(size_t bytes, void **address);

/* Gives a block back by its first address; NULL is allowed. Any other address, and giving back
 * twice, is a programming mistake. A block that is not to be cached and that the system does not
 * take is cached all the same. */
void openreg_pinned_free(void *address);

/* Whether an address lies inside an allocated block, of its rounded size. */
bool openreg_pinned_contains(const void *address);

/* Gives the cached blocks back to the system. Errors: SYSTEM (the block in question stays). */
openreg_status openreg_pinned_empty_cache(void);

/* What PYTORCH_ALLOC_CONF sets, in force for what is allocated and freed from then on. */
typedef struct openreg_pinned_settings {
  size_t max_round_bytes;  /* longer requests are not rounded up; SIZE_MAX: all are */
  size_t max_cached_bytes; /* nor are these, and longer blocks go back to the system when they are
                            * freed; SIZE_MAX: none do */
  /* Of the segment that new blocks are parts of, 4096 bytes or a multiple each, as long as it has
   * room; 0: there is none. It is reserved before the first block of the process is made: later
   * settings change nothing. No part of it is ever given back or made into a block again. */
  size_t reserved_segment_bytes;
} openreg_pinned_settings;

/* Errors: INVALID_ARGUMENT (NULL, a segment that is no multiple of 4096 bytes). */
openreg_status openreg_pinned_set_settings(const openreg_pinned_settings *settings);
void openreg_pinned_get_settings(openreg_pinned_settings *settings);

/* X(name): the statistics, under the names of torch.cuda.host_memory_stats, all of rounded sizes.
 * Its num_host_alloc and num_host_free are allocations.allocated and allocations.freed. As CUDA's:
 * the peaks of the active figures are sums of the peaks between each two powers of two, which need
 * not have been at one time; a block that is used again becomes active with the rounded size of the
 * request and ends to be with its own; of the segment only host_alloc_time is told, and of its
 * blocks all but the times. */
/* clang-format off */
#define OPENREG_PINNED_STAT_LIST(X)                            \
  X(active_requests)      /* blocks the program holds */       \
  X(active_bytes)                                              \
  X(allocations)          /* blocks there are: held, cached */ \
  X(allocated_bytes)
/* clang-format on */

typedef struct openreg_pinned_stats {
#define X(name) openreg_stat name;
  OPENREG_PINNED_STAT_LIST(X)
#undef X
  openreg_duration host_alloc_time; /* in asking the system for blocks */
  openreg_duration host_free_time;  /* in giving them back */
} openreg_pinned_stats;

/* One consistent picture. Errors: INVALID_ARGUMENT (NULL). */
openreg_status openreg_pinned_get_stats(openreg_pinned_stats *stats);

/* As openreg_memory_reset_peak and openreg_memory_reset_accumulated. */
void openreg_pinned_reset_peak(void);
void openreg_pinned_reset_accumulated(void);

#ifdef __cplusplus
}
#endif
#endif
