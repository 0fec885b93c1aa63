/* allocator.h: the public interface of the caching allocators for device memory and for pinned host
 * memory.
 *
 * Each device has one allocator over its arena. The policy is that of PyTorch's CUDA caching
 * allocator: the same requests give the same statistics, segments and blocks, and run out of memory
 * at the same request as on a GPU. allocator.c describes the policy. The allocator works on
 * addresses only and never touches the memory behind them, except with OPENREG_DEBUG_MEMORY=1.
 *
 * All functions are thread-safe. Error codes are those of device.h. Every function that names a
 * device can also fail with INVALID_CONFIGURATION, for a mistake in OPENREG_DEVICE_COUNT and
 * similar variables. In a process that was forked after initialization only pinned memory works:
 * functions that return a status fail with BAD_FORK, and none blocks.
 */
#ifndef OPENREG_ALLOCATOR_H
#define OPENREG_ALLOCATOR_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statistics types ------------------------------------------------------------------------ */

typedef struct openreg_stat {
  int64_t current, peak, allocated, freed; /* allocated and freed accumulate */
} openreg_stat;

/* Microseconds spent in `count` calls. max and min are peaks, 0 before the first call. */
typedef struct openreg_duration {
  int64_t total, max, min, count;
} openreg_duration;

enum { OPENREG_POOL_ALL, OPENREG_POOL_SMALL, OPENREG_POOL_LARGE, OPENREG_POOL_KINDS };

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A piece of device memory. All fields are constant while the block is allocated, except `user` and
 * `user_flags`. These belong to the holder of the block: 0 on allocation, never read here. */
typedef struct openreg_block {
  void *address; /* device view, 512-byte aligned; NULL for a block of 0 bytes */
  size_t bytes;  /* requested_bytes rounded up, plus a rest that was not split off */
  size_t requested_bytes;
  void *user;
  int32_t device;
  int32_t stream;
  uint32_t user_flags;
} openreg_block;

/* Allocates `bytes` for use on `stream`. If nothing fits, the allocator releases cached memory and
 * tries again. 0 bytes give a block without an address that is not counted. Errors: INVALID_DEVICE,
 * INVALID_ARGUMENT (stream), OUT_OF_MEMORY (only the cache may have been emptied;
 * openreg_memory_last_out_of_memory has the details), BAD_FORK, INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block);

/* Frees a block, and takes ownership of it. NULL is allowed. Does nothing in a forked process,
 * since the memory belongs to the parent. Freeing a block twice is a programming mistake. */
void openreg_block_free(openreg_block *block);

/* Why a request did not fit: the values of CUDA's error message. */
typedef struct openreg_out_of_memory_info {
  size_t bytes;         /* as requested */
  size_t rounded_bytes; /* the size of the block */
  size_t tried_bytes;   /* the size of the segment */
  uint64_t free_bytes, capacity_bytes;
  uint64_t allowed_bytes; /* the limit; UINT64_MAX: no limit */
  uint64_t allocated_bytes, reserved_bytes;
  uint64_t mempool_bytes; /* free memory of private pools */
  bool is_rejection;      /* by throws_on_oom */
} openreg_out_of_memory_info;

/* Returns the values of the calling thread's last request that failed with OUT_OF_MEMORY. */
void openreg_memory_last_out_of_memory(openreg_out_of_memory_info *info);

/* Returns the allocated block that starts at `address`, or NULL, in constant time. The caller does
 * not become its owner. */
openreg_block *openreg_block_find(const void *address);

/* Declares that work on `stream` also uses the block: after a free, its memory is not reused before
 * that work is done. Not necessary for the block's own stream and for blocks of 0 bytes. Errors:
 * INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_block_record_stream(openreg_block *block, int stream);

/* ---- memory straight from the device --------------------------------------------------------- */

/* Does what cudaMalloc does: returns memory of a device that no allocator caches or counts. The
 * size is rounded up to a multiple of 2 MiB. Errors: INVALID_DEVICE, INVALID_ARGUMENT (NULL, 0
 * bytes), OUT_OF_MEMORY, BAD_FORK, INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_device_malloc(int device, size_t bytes, void **address);

/* Frees such memory by its first address. Waits for the device's work first, as cudaFree does. NULL
 * is allowed. Errors: INVALID_ARGUMENT for an address that openreg_device_malloc did not return,
 * NOT_PERMITTED on a worker, BAD_FORK, SYSTEM. */
openreg_status openreg_device_free(void *address);

/* Functions of the program that provide device memory instead of the arena. The allocator calls
 * them without holding a lock, on the thread that allocates or releases memory. `allocate` returns
 * at least `bytes` of the device's memory, or NULL if it has none. That memory must come from
 * openreg_device_malloc or lie in an allocated block, at a multiple of 512 bytes from its start.
 * `free` gets the same arguments and the address. Both must work as long as memory of them exists.
 */
typedef struct openreg_custom_allocator {
  void *(*allocate)(void *context, size_t bytes, int device, int stream);
  void (*free)(void *context, void *address, size_t bytes, int device, int stream);
  void *context;
} openreg_custom_allocator;

/* Takes each block of every device from a custom allocator, and frees it there: nothing is cached
 * or counted. NULL restores the default. Errors: INVALID_ARGUMENT for one function without the
 * other, NOT_PERMITTED after the devices were initialized, BAD_FORK. */
openreg_status openreg_set_custom_allocator(const openreg_custom_allocator *custom);

/* ---- memory pools ---------------------------------------------------------------------------- */

/* A memory pool, as torch.cuda.MemPool, is identified by a number. Memory of a pool never shares a
 * segment with other memory, on any device. 0 is the default pool. Numbers are not reused. */

/* Flags for openreg_mempool_create. */
enum {
  /* Requests of pool 0 that fit nowhere else may use this pool's free memory of their stream. The
   * block then belongs to this pool. */
  OPENREG_MEMPOOL_USE_ON_OOM = 1,
  /* Never split a block: each one is a segment, and a request gets the smallest free block of its
   * stream that is large enough. */
  OPENREG_MEMPOOL_NO_SPLIT = 2,
};

/* Creates a pool with one user. Its memory comes from `custom`, or from the device if that is NULL.
 * Errors: INVALID_ARGUMENT (NULL, unknown flags, one function of two), OUT_OF_MEMORY (of the host),
 * BAD_FORK. */
openreg_status openreg_mempool_create(unsigned flags, const openreg_custom_allocator *custom,
                                      uint64_t *mempool);

/* Returns a number for a pool that openreg_mempool_retain creates later. Errors: INVALID_ARGUMENT
 * (NULL), BAD_FORK. */
openreg_status openreg_mempool_allocate_id(uint64_t *mempool);

/* Adds a user, who keeps the pool. Creates the pool if it does not exist. Errors: INVALID_ARGUMENT
 * for a number that was never returned, OUT_OF_MEMORY (of the host), BAD_FORK. */
openreg_status openreg_mempool_retain(uint64_t mempool);

/* Removes a user. After the last one, openreg_mempool_empty and openreg_cache_empty release the
 * pool's free memory, and also its allocated blocks once they are freed. A thread that has it as
 * its current pool continues to allocate there. For all functions here except openreg_mempool_empty
 * and _retain the pool no longer exists. Errors: INVALID_ARGUMENT for 0 or a pool that does not
 * exist, BAD_FORK. */
openreg_status openreg_mempool_release(uint64_t mempool);

/* Returns the number of users, 0 for a pool that does not exist. */
int64_t openreg_mempool_use_count(uint64_t mempool);

/* Get and set the pool in which the calling thread allocates on a device; 0 at first.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT for a pool that does not exist. */
openreg_status openreg_mempool_current(int device, uint64_t *mempool);
openreg_status openreg_mempool_set_current(int device, uint64_t mempool);

typedef struct openreg_mempool_stats {
  uint64_t mempool;
  openreg_stat reserved_bytes[OPENREG_POOL_KINDS];
} openreg_mempool_stats;

/* Returns what each pool except 0 has reserved of a device, for every pool that ever allocated
 * there; `current` is 0 for a pool that is gone. The caller owns the array and frees it with
 * free(); NULL if it is empty. openreg_memory_reset_peak and _reset_accumulated reset these too.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, OUT_OF_MEMORY (of the host). */
openreg_status openreg_mempool_get_stats(int device, openreg_mempool_stats **stats, size_t *count);

/* Does what openreg_cache_empty does, on all devices that were used, for one pool that has no
 * users. Keeps the memory of a pool that has. Continues with the next device after an error, and
 * returns the first one. Errors: INVALID_ARGUMENT, BAD_FORK, NOT_PERMITTED on a worker, SYSTEM. */
openreg_status openreg_mempool_empty(uint64_t mempool);

/* Returns the allocated blocks of a pool other than 0 on one device, by address. The caller owns
 * the array, not the blocks, and frees it with free(). NULL if it is empty. Errors: INVALID_DEVICE,
 * INVALID_ARGUMENT, BAD_FORK, OUT_OF_MEMORY (of the host). */
openreg_status openreg_mempool_blocks(int device, uint64_t mempool, openreg_block ***blocks,
                                      size_t *count);

/* How a pool's segments on a device were divided into blocks, and which blocks were allocated. */
typedef struct openreg_mempool_checkpoint openreg_mempool_checkpoint;

/* Creates a checkpoint. Free it with free(). Errors: as openreg_mempool_blocks. */
openreg_status openreg_mempool_take_checkpoint(int device, uint64_t mempool,
                                               openreg_mempool_checkpoint **checkpoint);

/* Restores a pool: the blocks that were allocated at the checkpoint are allocated again at the same
 * addresses. `blocks` returns those that were restored, as openreg_mempool_blocks does; the caller
 * owns them. Blocks that are allocated already stay as they are, and no other block may be
 * allocated. Segments that were reserved since stay free, and those of the checkpoint must still
 * exist. Waits for streams that use freed blocks. Errors: as openreg_mempool_blocks, and
 * NOT_PERMITTED, which changes nothing. */
openreg_status openreg_mempool_restore(const openreg_mempool_checkpoint *checkpoint,
                                       openreg_block ***blocks, size_t *count);

/* ---- memory of other processes --------------------------------------------------------------- */

/* These functions use the handles of device.h for blocks. */

/* Returns a handle with which one other process can import the block. The importer waits for work
 * that was submitted to the block's stream and to `stream`; for this, later work of `stream` runs
 * after the work of the block's stream. A freed block stays allocated, in all statistics, until no
 * other process holds it. Errors: as openreg_ipc_export; also INVALID_ARGUMENT for a block of 0
 * bytes, and NOT_PERMITTED for an imported one. */
openreg_status openreg_block_export(openreg_block *block, int stream, openreg_ipc_handle *handle);

/* Imports a block of another process for use on `stream`. `bytes` and `requested_bytes` are those
 * of the exporter's block. An import is in no statistic and is not observed, because the exporter's
 * block is. openreg_block_find takes time proportional to the number of imports, and returns one of
 * several imports of the same memory. Freeing the import releases the memory after this process's
 * streams have finished all work that may use it. Errors: as openreg_ipc_open. */
openreg_status openreg_block_import(const openreg_ipc_handle *handle, int stream,
                                    openreg_block **block);
bool openreg_block_is_imported(const openreg_block *block);

/* Releases freed blocks that other processes no longer hold, and freed imports that streams no
 * longer use. Requests that reserve memory, exports and openreg_cache_empty do the same.
 * Errors: INVALID_DEVICE, BAD_FORK. */
openreg_status openreg_memory_collect_shared(int device);

/* ---- the cache ------------------------------------------------------------------------------- */

/* Releases every segment that is one free block, and the free pages of expandable segments, to the
 * ledger and the system. Waits for the device's work where necessary. Memory pools keep their
 * segments until they are destroyed. Segments may also stay if other threads submit work to their
 * streams all the time. Does nothing for a device that was never used.
 * Errors: INVALID_DEVICE, BAD_FORK, NOT_PERMITTED on a worker, SYSTEM. */
openreg_status openreg_cache_empty(int device);

/* Limit what this process may reserve to `fraction` (0 to 1) of the device's capacity; 1 is no
 * limit. Memory that is already reserved stays. For a device that was never used, get returns the
 * value of the settings.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK; set also SYSTEM. */
openreg_status openreg_memory_set_fraction(int device, double fraction);
openreg_status openreg_memory_get_fraction(int device, double *fraction);

/* The settings of PYTORCH_ALLOC_CONF, for all devices. */
enum { OPENREG_ROUNDUP_INTERVALS = 16 };
typedef struct openreg_memory_settings {
  size_t max_split_bytes; /* larger blocks, and those of this size, are not split; SIZE_MAX: none */
  size_t max_non_split_rounding_bytes; /* how much larger than its request such a block may be */
  size_t large_segment_bytes;          /* for requests above 1 MiB and below 10 MiB; the page size
                                        * of expandable segments in the large pool */
  /* Number of steps between two powers of two to which sizes are rounded up; 0 and 1: multiples of
   * 512 bytes. One entry per size: up to 2 MiB, 2 to 4 MiB, ... 32 GiB and more. */
  size_t roundup_power2_divisions[OPENREG_ROUNDUP_INTERVALS];
  double garbage_collection_threshold; /* fraction of the limit; 0: no collection */
  /* The limit for devices that are first used after this call. throws_on_oom compares with it. */
  double memory_fraction;
  bool expandable_segments;
  bool is_cache_off;  /* take each block from the device and return it there, without counting it */
  bool throws_on_oom; /* reject a request at once if its segment would exceed that limit */
} openreg_memory_settings;

/* Errors: INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_memory_set_settings(const openreg_memory_settings *settings);
void openreg_memory_get_settings(openreg_memory_settings *settings);

/* ---- statistics ------------------------------------------------------------------------------ */

/* X(name): the statistics that exist for each kind of pool, under CUDA's names. The small pool
 * serves requests of up to 1 MiB. Names that end in _bytes are sums, the others counts. */
/* clang-format off */
#define OPENREG_MEMORY_STAT_LIST(X)                                                 \
  X(allocation)           /* blocks that the program holds */                       \
  X(segment)              /* without expandable segments */                         \
  X(active)               /* blocks that the program holds or a stream still uses */ \
  X(inactive_split)       /* free blocks that are a part of a segment; the same */  \
  X(allocated_bytes)                                                                \
  X(reserved_bytes)                                                                 \
  X(active_bytes)                                                                   \
  X(inactive_split_bytes)                                                           \
  X(requested_bytes)
/* clang-format on */

typedef struct openreg_memory_stats {
#define X(name) openreg_stat name[OPENREG_POOL_KINDS];
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
  openreg_stat oversize_allocations, oversize_segments; /* of max_split_bytes and more */
  int64_t alloc_retries;  /* times the cache was emptied to satisfy a request */
  int64_t ooms;           /* requests that failed after that */
  int64_t oom_rejections; /* requests that throws_on_oom rejected */
  int64_t device_allocs;  /* segments created, and mappings of expandable ones */
  int64_t device_frees;   /* segments released, and pages unmapped */
  int64_t stream_syncs;   /* times the allocator waited for all events to release memory */
  size_t max_split_bytes; /* when the device was first used; SIZE_MAX: no limit */
} openreg_memory_stats;

/* Returns one consistent snapshot, with all memory pools counted together. All zero for a device
 * that was not used.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_memory_get_stats(int device, openreg_memory_stats *stats);

/* reset_peak sets peaks to the current values. reset_accumulated sets accumulated sums and counters
 * to zero.
 * Errors: INVALID_DEVICE, BAD_FORK. */
openreg_status openreg_memory_reset_peak(int device);
openreg_status openreg_memory_reset_accumulated(int device);

/* ---- observers and snapshots ----------------------------------------------------------------- */

typedef enum openreg_memory_action {
  OPENREG_MEMORY_ALLOCATED,      /* the program got the block */
  OPENREG_MEMORY_FREE_REQUESTED, /* the program freed it, and no other process holds it */
  OPENREG_MEMORY_FREE_COMPLETED, /* no stream uses it any more */
  OPENREG_MEMORY_SEGMENT_ALLOCATED,
  OPENREG_MEMORY_SEGMENT_FREED,
  OPENREG_MEMORY_SEGMENT_MAPPED, /* pages of an expandable segment */
  OPENREG_MEMORY_SEGMENT_UNMAPPED,
  OPENREG_MEMORY_EXHAUSTED, /* a request failed; `address` holds the free bytes of the device */
} openreg_memory_action;

typedef struct openreg_memory_event {
  openreg_memory_action action;
  int device;
  int stream;
  uintptr_t address;
  size_t bytes;       /* blocks: as requested; EXHAUSTED: rounded up */
  size_t block_bytes; /* blocks: as the statistics count them; otherwise as `bytes` */
  uint64_t mempool;
} openreg_memory_event;

/* An observer is called for every event from then on, in order for each device, on the thread that
 * causes the event, with the device's lock held. It must not call this library, nor wait for a
 * thread that does. Blocks of 0 bytes cause no events. */
typedef void (*openreg_memory_observer)(const openreg_memory_event *event);
enum { OPENREG_MEMORY_OBSERVERS = 4 }; /* how many there can be at a time */

/* Adds an observer; adding it again has no effect. Errors: INVALID_ARGUMENT (NULL), NOT_PERMITTED
 * (too many), BAD_FORK. */
openreg_status openreg_memory_add_observer(openreg_memory_observer observer);
/* Removes an observer. No thread is running it when this returns. Does nothing for an unknown one,
 * and in a forked process. */
void openreg_memory_remove_observer(openreg_memory_observer observer);

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

/* All segments of a device by address, then those of custom allocators. The blocks of a segment
 * cover it. Each mapped part of an expandable segment is a segment here. */
typedef struct openreg_memory_snapshot {
  openreg_segment_info *segments;
  openreg_block_info *blocks;
  size_t segment_count, block_count;
} openreg_memory_snapshot;

/* Takes one consistent snapshot, without imports. Free it with openreg_memory_free_snapshot, which
 * also allows NULL and a snapshot that was freed before. The snapshot is empty for a device that
 * was not used, and if the host has no memory. Errors: INVALID_DEVICE, INVALID_ARGUMENT (NULL),
 * BAD_FORK, OUT_OF_MEMORY (of the host). */
openreg_status openreg_memory_take_snapshot(int device, openreg_memory_snapshot *snapshot);
void openreg_memory_free_snapshot(openreg_memory_snapshot *snapshot);

/* ---- OPENREG_DEBUG_MEMORY=1 ------------------------------------------------------------------ */

/* The allocator fills fresh memory with one pattern, freed memory with another, and a red zone
 * behind each block with a third. It checks the red zone when the block is freed, free memory when
 * it is reused or released, and everything in openreg_memory_check. Every launch finishes before it
 * returns. A block is 512 bytes longer; all statistics except the requested ones include these.
 * Damage is repaired, so that it is reported once. Not found: reads past the end, and writes past
 * the red zone into another block. Memory of other processes is not checked. */
enum {
  OPENREG_DEBUG_FRESH = 0xFF, /* NaN as a number of any width, -1 as an integer */
  OPENREG_DEBUG_FREED = 0xFD,
  OPENREG_DEBUG_ZONE = 0xFB,
  OPENREG_DEBUG_STACK_FRAMES = 32,
};

/* The kinds of damage. Each is written to stderr with the stack of the allocation, and is kept as a
 * failure of the device, which the next synchronization returns. */
typedef enum openreg_memory_damage {
  OPENREG_DAMAGE_OVERFLOW,       /* a write past the end of an allocated block */
  OPENREG_DAMAGE_USE_AFTER_FREE, /* a write to freed memory */
} openreg_memory_damage;

/* Captures stacks of the program, instead of the C library's backtrace, whose frames are addresses.
 * `capture` is called before each allocation. `describe` turns what it returned into text that
 * malloc allocated, or NULL. `drop` is called when the memory belongs to another allocation. None
 * is called with a lock held. After another provider is set, `describe` and `drop` are still called
 * for stacks that this provider captured. */
typedef struct openreg_stack_provider {
  void *(*capture)(void);
  char *(*describe)(void *stack);
  void (*drop)(void *stack);
} openreg_stack_provider;
/* Sets the stack provider; NULL restores the C library's backtrace. */
void openreg_memory_set_stack_provider(const openreg_stack_provider *provider);

/* Checks all red zones and all freed memory of a device now, and writes all damage to stderr.
 * Returns OK, or LAUNCH_FAILURE with the message of the first damage, which is not kept as a
 * failure of the device. Does nothing without OPENREG_DEBUG_MEMORY=1. Other errors: INVALID_DEVICE,
 * BAD_FORK. */
openreg_status openreg_memory_check(int device);

/* Returns the size of the red zone of a block: from the end of its requested bytes to the multiple
 * of 512 bytes at which the next block can start. 0 if the request is such a multiple and memory
 * debugging is off. */
size_t openreg_red_zone_bytes(size_t requested_bytes);

/* Fills device memory with the byte `value`. `address` is a device view. */
void openreg_pattern_fill(void *address, size_t bytes, int value);

/* Returns whether a byte of this memory differs from `value`. If so, sets the offsets of the first
 * such byte and behind the last one. */
bool openreg_pattern_find_damage(const void *address, size_t bytes, int value, size_t *begin,
                                 size_t *end);

/* For tests: walks every structure of a device's allocator and checks its invariants. Returns false
 * and records an error if one is broken, or the device cannot be used. */
bool openreg_memory_is_valid(int device);

/* ---- pinned host memory ---------------------------------------------------------------------- */

/* Host memory for copies to and from devices. A GPU driver locks it in place, so that the device
 * can access it asynchronously. A simulated device can access all memory of its process. So here
 * "pinned" only means that the memory came from this pool, which recognizes it by its address.
 * Nothing is locked, and the system commits pages on first use.
 *
 * As in CUDA's caching host allocator, sizes are rounded up to powers of two, unless the settings
 * say otherwise, and blocks are never split or merged. A freed block is reused, with whatever it
 * contains, by requests of its rounded size. Where sizes are not rounded, requests between the same
 * powers of two reuse it if it is large enough. Freeing does not wait: work that uses the block
 * must have finished.
 *
 * The pool belongs to no device and initializes none. It also works in a forked process, even if
 * the parent initialized devices: the child has its own copy of every block and may free inherited
 * blocks.
 */

/* Allocates page-aligned memory. New memory is zeroed. 0 bytes give NULL and are not counted. If
 * the host has no memory left, the pool releases cached blocks and tries again. Errors:
 * INVALID_ARGUMENT (NULL), OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_pinned_allocate(size_t bytes, void **address);

/* Frees a block by its first address. NULL is allowed. Any other address, and freeing a block
 * twice, is a programming mistake. If the system refuses a block that should not be cached, the
 * pool caches it anyway. */
void openreg_pinned_free(void *address);

/* Whether an address lies inside an allocated block (its rounded size counts) or inside registered
 * memory. */
bool openreg_pinned_contains(const void *address);

/* Host memory that is pinned without being a block of this pool: memory that the program registered
 * (cudaHostRegister) or got from the CUDA runtime (cudaHostAlloc). The pool neither owns nor counts
 * it. `flags` belongs to the caller. */
typedef struct openreg_host_range {
  void *address;
  size_t bytes;
  unsigned flags;
} openreg_host_range;

/* Registers a range. Errors: INVALID_ARGUMENT (NULL, 0 bytes, or beyond the address space),
 * NOT_PERMITTED (a part of it is registered), OUT_OF_MEMORY (of the host), SYSTEM. */
openreg_status openreg_host_register(const openreg_host_range *range);

/* Forgets the range that starts at `address`. Work that uses it must have finished. Errors:
 * INVALID_ARGUMENT (no registered range starts there). */
openreg_status openreg_host_unregister(void *address);

/* Whether a registered range contains the address; if so, fills `range`. */
bool openreg_host_find(const void *address, openreg_host_range *range);

/* Returns the cached blocks to the system. Errors: SYSTEM (the block that failed stays cached). */
openreg_status openreg_pinned_empty_cache(void);

/* The settings of PYTORCH_ALLOC_CONF. They apply to later allocations and frees. */
typedef struct openreg_pinned_settings {
  size_t max_round_bytes;  /* larger requests are not rounded up; SIZE_MAX: all are */
  size_t max_cached_bytes; /* the same; and larger blocks are not cached when they are freed;
                            * SIZE_MAX: all are */
  /* The size of a segment from which new blocks are taken, in multiples of 4096 bytes, as long as
   * it has room; 0: no segment. It is reserved before the first block of the process; later values
   * have no effect. Its memory is never returned or reused. */
  size_t reserved_segment_bytes;
  /* Whether a reused block is counted as active with its own size, as PyTorch does since 2.14. If
   * not, it is counted with the rounded size of its request. It is subtracted with its own size. */
  bool counts_whole_blocks;
} openreg_pinned_settings;

/* Errors: INVALID_ARGUMENT (NULL, a segment that is not a multiple of 4096 bytes). */
openreg_status openreg_pinned_set_settings(const openreg_pinned_settings *settings);
void openreg_pinned_get_settings(openreg_pinned_settings *settings);

/* X(name): the statistics, under the names of torch.cuda.host_memory_stats, in rounded sizes. Its
 * num_host_alloc and num_host_free are allocations.allocated and allocations.freed. As on CUDA:
 *   - The peaks of the active statistics are sums of the peaks of each size class, which need not
 *     have occurred at the same time.
 *   - A reused block is counted as active as the setting counts_whole_blocks says.
 *   - The reserved segment appears in host_alloc_time only; its blocks appear everywhere except in
 *     the times. */
/* clang-format off */
#define OPENREG_PINNED_STAT_LIST(X)                            \
  X(active_requests)      /* blocks that the program holds */  \
  X(active_bytes)                                              \
  X(allocations)          /* all blocks: held and cached */    \
  X(allocated_bytes)
/* clang-format on */

typedef struct openreg_pinned_stats {
#define X(name) openreg_stat name;
  OPENREG_PINNED_STAT_LIST(X)
#undef X
  openreg_duration host_alloc_time; /* spent in allocating blocks from the system */
  openreg_duration host_free_time;  /* spent in returning them */
} openreg_pinned_stats;

/* Returns one consistent snapshot. Errors: INVALID_ARGUMENT (NULL). */
openreg_status openreg_pinned_get_stats(openreg_pinned_stats *stats);

/* As openreg_memory_reset_peak and openreg_memory_reset_accumulated. */
void openreg_pinned_reset_peak(void);
void openreg_pinned_reset_accumulated(void);

#ifdef __cplusplus
}
#endif
#endif
