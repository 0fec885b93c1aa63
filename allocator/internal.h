/* internal.h: the allocator of a device and its functions, shared by the allocator's files only.
 *
 * blocks.h has the data structures. allocator.c describes the policy and the invariants.
 *
 * The functions here do not lock, except those that allocator.h declares, openreg_shared_find and
 * openreg_allocator_wait_idle. Call the others with the lock of their device held. The lock of the
 * list of memory pools (mempool.c) and the ledger's lock are taken while a device's lock is held,
 * never the other way round. Pinned memory has its own lock and pool (pinned.c), and uses only
 * slabs, pages and single statistics from here.
 */
#ifndef OPENREG_ALLOCATOR_INTERNAL_H
#define OPENREG_ALLOCATOR_INTERNAL_H

#include "allocator/blocks.h"
#include "allocator/lock.h"
#include "allocator/slab.h"
#include "device/capture.h"

#pragma GCC visibility push(hidden)

/* ---- splitting and merging (split.c) --------------------------------------------------------- */

/* Gives a block to the program: splits it if necessary, and updates all statistics. The block was
 * taken out of its pool, or is new. Uses one record. */
openreg_block *openreg_block_mark_allocated(struct allocator *allocator, struct block *block,
                                            const struct request *request);
/* Counts and reports that the program freed a block which no other process holds. */
void openreg_block_count_freed(struct allocator *allocator, struct block *block);
/* Makes an active block free, which nobody uses any more, and merges it with its neighbours. */
void openreg_block_mark_free(struct allocator *allocator, struct block *block);
/* Ends a block after `bytes`. Returns the rest, whose state is not set. Uses one record. */
struct block *openreg_block_cut(struct allocator *allocator, struct block *block, size_t bytes);
/* Merges the neighbours that have this state into a block that is in no tree. Returns how many. */
int openreg_block_merge(struct allocator *allocator, struct block *block, enum block_state state);

/* ---- reserving and releasing memory ---------------------------------------------------------- */

/* Creates a segment for a request; its block is in no tree. Errors: OUT_OF_MEMORY (limit, ledger,
 * no addresses), and others of the ledger. */
openreg_status openreg_segment_reserve(struct allocator *allocator, struct request *request,
                                       struct block **block);
/* Releases the segment of a free block that covers all of it. Returns NOT_READY, and changes
 * nothing, if the device must become idle first. Errors: those of the system. */
openreg_status openreg_segment_release(struct allocator *allocator, struct block *block);
/* Creates a segment of `bytes` in the arena without counting it. Errors: as
 * openreg_segment_reserve. */
openreg_status openreg_segment_take(struct allocator *allocator, const struct request *request,
                                    size_t bytes, struct segment **segment);
/* Finds addresses in the arena for a segment with the pool and stream of a request. NULL if there
 * are none. Uses one record of each kind. */
struct segment *openreg_segment_place(struct allocator *allocator, const struct request *request,
                                      size_t bytes);
/* Adds a segment over memory that a custom allocator returned. */
struct segment *openreg_segment_add(struct allocator *allocator, const struct request *request,
                                    char *address, size_t bytes,
                                    const openreg_custom_allocator *custom);
void openreg_segment_remove(struct allocator *allocator, struct segment *segment);
/* Gives pages of a free block back to the ledger and the system, unless they came from a custom
 * allocator. Errors: as openreg_segment_release. */
openreg_status openreg_segment_give_back(struct allocator *allocator, const struct block *block,
                                         char *address, size_t bytes);

/* Maps memory for a request into an expandable segment. As openreg_segment_reserve. */
openreg_status openreg_expandable_reserve(struct allocator *allocator,
                                          const struct request *request, struct block **block);
/* Unmaps the whole pages of a free block. Errors: as openreg_segment_release. */
openreg_status openreg_expandable_unmap(struct allocator *allocator, struct block *block);

/* ---- memory of custom allocators (custom_allocator.c) ---------------------------------------- */

/* Asks a custom allocator for a segment, without holding the lock meanwhile. Errors:
 * OUT_OF_MEMORY, INVALID_ADDRESS if it returns something that is not memory of the device, SYSTEM.
 */
openreg_status openreg_custom_allocator_reserve(struct allocator *allocator,
                                                const struct request *request,
                                                const openreg_custom_allocator *custom,
                                                size_t bytes, struct segment **segment);
/* Gives `segments_to_return` back to their allocators, without holding the lock meanwhile. */
void openreg_custom_allocator_release(struct allocator *allocator);
/* Returns the custom allocator of all blocks; it has no functions if there is none. */
openreg_custom_allocator openreg_custom_allocator_of_process(void);
/* Errors: INVALID_ARGUMENT for one function without the other. NULL is allowed. */
openreg_status openreg_custom_allocator_require(const openreg_custom_allocator *custom);

/* ---- blocks without a cache (uncached.c) ----------------------------------------------------- */

static inline bool block_is_uncached(const struct block *block) {
  return block->pool->kind == OPENREG_POOL_ALL;
}
/* Returns a block that is not counted yet. Errors: as openreg_segment_reserve. */
openreg_status openreg_uncached_allocate(struct allocator *allocator, struct request *request,
                                         struct block **block);
/* Releases the block, now or as soon as possible. Does not hold the lock while it waits. */
void openreg_uncached_free(struct allocator *allocator, struct block *block);
/* Releases the block now. Errors: as openreg_segment_release. */
openreg_status openreg_uncached_release(struct allocator *allocator, struct block *block);

/* ---- releasing cached memory (reclaim.c) ----------------------------------------------------- */

/* These functions do not hold the lock while they wait for the device. Errors: NOT_PERMITTED on a
 * worker, SYSTEM. */
openreg_status openreg_collect_garbage(struct allocator *allocator);
/* OUT_OF_MEMORY if the request needs more than was released. */
openreg_status openreg_release_oversize(struct allocator *allocator, const struct request *request);
/* Does what empty_cache does. If `only` is not NULL: for that memory pool, if it is not kept. */
openreg_status openreg_allocator_empty(struct allocator *allocator, const uint64_t *only);

/* ---- blocks that wait for streams (events.c) ------------------------------------------------- */

struct stream_use_queue {
  struct stream_use *first, **last;
};

void openreg_events_initialize(struct allocator *allocator);
/* Frees a block after the streams that may use it are done. */
void openreg_events_defer(struct allocator *allocator, struct block *block);
/* Frees the blocks whose events are done, without waiting. */
void openreg_events_process(struct allocator *allocator);
/* Waits for all events, without holding the lock, and frees their blocks. If `only` is not NULL:
 * those of one memory pool. */
openreg_status openreg_events_synchronize(struct allocator *allocator, const uint64_t *only);
/* Whether a stream that may use an import has work left. */
bool openreg_stream_uses_are_busy(const struct block *block);
void openreg_stream_uses_drop(struct allocator *allocator, struct block *block);

/* ---- statistics (stats.h, stats.c, mempool_stats.c) ------------------------------------------ */

/* The statistics of each memory pool on one device. */
struct mempool_stats {
  openreg_mempool_stats *list;
  size_t count, room;
};

/* ---- the allocator of one device (allocator.c) ----------------------------------------------- */

/* The block of the last operation, if that was an allocation from the cache; see fast_path.h. */
struct last_allocation {
  struct block *block;                /* NULL: none */
  bool is_free;                       /* the program freed it */
  int64_t pairs;                      /* how often it was freed and allocated again */
  openreg_memory_stats before, after; /* the first time */
};

/* For OPENREG_DEBUG_MEMORY=1 (debug.c). */
struct stack;
struct damage;
struct debug {
  struct stack **stacks; /* of the latest allocation that began at each unit of the arena */
  struct damage *found;  /* to report when the lock is free */
  struct stack *to_drop; /* when the lock is free */
};

struct allocator {
  struct lock lock;
  struct last_allocation last_allocation;
  int device;
  char *base;
  size_t arena_bytes;
  size_t capacity;
  struct address_map **address_map; /* by granule of the arena; NULL where memory never was */
  openreg_memory_settings settings;
  struct pool pools[OPENREG_POOL_KINDS]; /* of memory pool 0; the first belongs to uncached.c */
  struct private_pool *private_pools;    /* in the order of mempool_hash */
  struct private_pool *spare_private_pools;
  struct segment *lowest;                     /* by address */
  struct segment *first_custom, *last_custom; /* in the order of creation; inside other segments */
  struct segment *segments_to_return;         /* to custom allocators */
  openreg_custom_allocator custom;            /* of all blocks */
  uint64_t segments_made;
  struct segment *last_contiguous; /* no gap from the arena's base up to its end; NULL: none */
  struct stream_use_queue events[OPENREG_STREAMS_PER_DEVICE]; /* in the order of recording */
  size_t event_count;
  struct block *awaiting_idle, *awaiting_importers, *imports;
  struct slab blocks, segments, stream_uses;
  size_t allowed_bytes; /* the limit of set_fraction; SIZE_MAX: no limit */
  bool has_waited;      /* the operation that holds the lock has waited for the device */
  struct mempool_stats mempool_stats;
  size_t empty_blocks; /* allocated blocks of 0 bytes */
  struct debug debug;
  openreg_memory_stats stats;
};

/* Iterates over all segments, those of custom allocators last. Pass NULL for the first; returns
 * NULL after the last. */
static inline struct segment *segment_next(const struct allocator *allocator,
                                           const struct segment *segment) {
  struct segment *next = segment ? segment->above : allocator->lowest;
  return next || (segment && segment_is_custom(segment)) ? next : allocator->first_custom;
}

/* Returns the device's allocator, and creates it on first use. Errors: INVALID_DEVICE, BAD_FORK,
 * INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_allocator_open(int device, struct allocator **allocator);
/* The same, but NULL for a device that was never used. */
openreg_status openreg_allocator_get_existing(int device, struct allocator **allocator);
/* The same, but also NULL for a device that cannot be used, without recording an error. */
struct allocator *openreg_allocator_ready(int device);
/* Returns the allocator of an allocated block; NULL in a forked process. */
struct allocator *openreg_allocator_of_block(const struct block *block);
/* Frees an allocated block that no other process holds. */
void openreg_allocator_return_block(struct allocator *allocator, struct block *block);
/* Releases the lock, waits for the work of the device, and takes the lock again. */
openreg_status openreg_allocator_wait_idle(struct allocator *allocator);

/* The address map: for each unit of a granule the allocated block that starts there. */
enum { GRANULE_BYTES = 2 << 20, GRANULE_UNITS = GRANULE_BYTES / UNIT_BYTES };
struct address_map {
  struct block *at[GRANULE_UNITS];
};

/* Extends the address map over a range, before a block of it is allocated. The map never shrinks.
 * Returns false and records an error if the host has no memory. */
bool openreg_address_map_cover(struct allocator *allocator, const char *address, size_t bytes);

static inline struct block **address_map_slot(const struct allocator *allocator,
                                              const void *address) {
  size_t unit = (size_t)((const char *)address - allocator->base) / UNIT_BYTES;
  return &allocator->address_map[unit / GRANULE_UNITS]->at[unit % GRANULE_UNITS];
}

/* Copies the settings of the process into a new allocator (config.c). */
void openreg_settings_initialize(struct allocator *allocator);

/* ---- OPENREG_DEBUG_MEMORY=1 (debug.c) -------------------------------------------------------- */

/* Whether memory debugging is on. Set before the first device has an allocator. */
extern atomic_bool openreg_memory_debug_is_on;

static inline bool memory_debug_is_on(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_memory_debug_is_on, memory_order_relaxed),
                          0);
}

/* The bytes that are added to each request for its red zone. */
enum { RED_ZONE_BYTES = UNIT_BYTES };
static inline size_t red_zone_bytes(void) {
  return memory_debug_is_on() ? RED_ZONE_BYTES : 0;
}

/* Prepares a device if its configuration asks for debugging. False if the host has no memory. */
bool openreg_debug_initialize(struct allocator *allocator);
/* Captures the stack of an allocation that begins; NULL if that fails. Drop it after use. Call both
 * without the lock. */
struct stack *openreg_debug_capture_stack(void);
void openreg_debug_drop_stack(struct stack *stack);
/* Call these when memory goes from the system to the pool, from the pool to the program, back to
 * the pool, and back to the system. Each checks the pattern that the memory should hold, and fills
 * it with the next one. on_allocate takes its own reference of the stack. */
void openreg_debug_on_reserve(char *address, size_t bytes);
void openreg_debug_on_allocate(struct allocator *allocator, const struct block *block,
                               struct stack *stack);
void openreg_debug_on_free(struct allocator *allocator, const struct block *block);
void openreg_debug_on_release(struct allocator *allocator, const struct block *block, char *address,
                              size_t bytes);
/* Releases the lock and reports the damage that was found. */
void openreg_debug_unlock(struct allocator *allocator);

/* ---- records of blocks ----------------------------------------------------------------------- */

static inline struct block *block_take_record(struct allocator *allocator) {
  struct block *block = slab_take(&allocator->blocks);
  assert(block->state == BLOCK_RECYCLED);
  return block;
}
static inline void block_put_record(struct allocator *allocator, struct block *block) {
  assert(block->state != BLOCK_RECYCLED);
  block->state = BLOCK_RECYCLED;
  slab_put(&allocator->blocks, block);
}

/* ---- locking --------------------------------------------------------------------------------- */

/* Applies the operations that the fast path only counted (fast_path.c). */
void openreg_allocator_flush_fast_path(struct allocator *allocator);
/* Begins an operation that does not take the fast path. */
static inline void allocator_flush_fast_path(struct allocator *allocator) {
  if (allocator->last_allocation.is_free || allocator->last_allocation.pairs > 1)
    openreg_allocator_flush_fast_path(allocator);
  allocator->last_allocation.block = NULL;
  allocator->last_allocation.pairs = 0;
  allocator->has_waited = false;
}

/* Whoever locks a device's allocator finds the fast path flushed. */
static inline void allocator_lock(struct allocator *allocator) {
  lock_take(&allocator->lock);
  allocator_flush_fast_path(allocator);
}
static inline void allocator_unlock(struct allocator *allocator) {
  while (__builtin_expect(allocator->segments_to_return != NULL, 0))
    openreg_custom_allocator_release(allocator);
  if (memory_debug_is_on() && (allocator->debug.found || allocator->debug.to_drop)) {
    openreg_debug_unlock(allocator);
    return;
  }
  lock_give(&allocator->lock);
}

/* Counts a request that failed, reports it to the observers, records the error, and returns
 * OUT_OF_MEMORY (report.c). */
openreg_status openreg_report_out_of_memory(struct allocator *allocator,
                                            const struct request *request);

/* ---- memory pools (mempool.c) ---------------------------------------------------------------- */

/* Whether another memory pool than 0 ever existed. If not, no thread looks up its current pool. */
extern atomic_bool openreg_mempools_exist;

/* Returns the pool of the stream's capture, if the stream captures; else the thread's pool. */
uint64_t openreg_mempool_current_of(int device, int stream);

static inline bool mempools_exist(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_mempools_exist, memory_order_relaxed), 0);
}
static inline uint64_t mempool_current(int device, int stream) {
  return mempools_exist() ? openreg_mempool_current_of(device, stream) : 0;
}

/* CUDA keeps its pools in hash tables and iterates over them in the order of this hash (Fibonacci
 * hashing). */
static inline uint64_t mempool_hash(uint64_t mempool) {
  return mempool * UINT64_C(11400714819323198485);
}

/* Checks that the pool is 0 or has users. Errors: INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_mempool_require(uint64_t mempool);
/* Whether a pool is kept: its free memory is not released with the cache. */
bool openreg_mempool_is_kept(uint64_t mempool);
/* Sets is_unsplit and custom to the values with which a kept pool was created. */
void openreg_mempool_get_options(struct private_pool *pool);
/* Iterates over the pools with OPENREG_MEMPOOL_USE_ON_OOM, in CUDA's order. Pass 0 for the first;
 * returns 0 after the last. */
uint64_t openreg_mempool_next_on_oom(uint64_t mempool);

/* Makes sure that a memory pool has statistics. Returns false and records an error if the host has
 * no memory. */
bool openreg_mempool_ensure_stats(struct allocator *allocator, uint64_t mempool);
/* Adds `change` to the reserved bytes of a pool; negative if it released memory. */
void openreg_mempool_count_reserved(struct allocator *allocator, const struct pool *pool,
                                    int64_t change);
void openreg_mempool_for_each_stats(struct allocator *allocator,
                                    void (*change)(openreg_stat *stat));

/* ---- observers (observer.c) ------------------------------------------------------------------ */

extern atomic_bool openreg_memory_has_observers;

static inline bool memory_is_observed(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_memory_has_observers, memory_order_acquire),
                          0);
}

/* Call the observers, if there are any. */
void openreg_observe_memory(const openreg_memory_event *event);
void openreg_observe_block(openreg_memory_action action, const struct block *block);
void openreg_observe_segment(openreg_memory_action action, const struct allocator *allocator,
                             const struct segment *segment, const char *address, size_t bytes);

/* ---- blocks that processes share (shared.c) -------------------------------------------------- */

/* Frees a shared block, now or when no process holds it any more. */
void openreg_shared_free(struct allocator *allocator, struct block *block);
/* Checks the blocks that wait; returns whether any wait ended. Costs a system call for each block,
 * so call it only where the alternative also makes system calls. */
bool openreg_shared_poll(struct allocator *allocator);
/* Returns the import that starts at an address beyond the arena, or NULL. Takes the lock. */
openreg_block *openreg_shared_find(struct allocator *allocator, const void *address);

#pragma GCC visibility pop
#endif
