/* allocator.c: the allocation policy of PyTorch's CUDA caching allocator, and the functions that
 * allocate and free blocks by it.
 *
 * Asking the driver for memory is slow and waits for the device, so the allocator keeps memory that
 * the program frees. A *segment* is memory that came from the driver. Requests of up to 1 MiB use
 * the small pool, whose segments have 2 MiB. Larger requests use the large pool: segments have 20
 * MiB for requests below 10 MiB, and otherwise the smallest multiple of 2 MiB that fits. A segment
 * is cut into *blocks*, which all belong to one stream: later work of the stream may reuse at once
 * what earlier work freed.
 *
 * A request takes the smallest free block of its pool and stream that is large enough; among equal
 * ones, the one in the oldest segment (pool.c). If the rest is worth a block, the request gets only
 * the front: the rest must have 512 bytes in the small pool, and more than 1 MiB in the large pool
 * (split.c). A freed block merges with free neighbours in its segment. A block that other streams
 * use waits for them first (events.c).
 *
 * If no free block fits, the allocator takes these steps in order until one succeeds:
 *
 *     1. with a limit and a garbage_collection_threshold: release old segments (reclaim.c)
 *     2. reserve a new segment, if the limit and the device allow it (segment.c, expandable.c)
 *     3. use free memory of private pools that were created with use_on_oom
 *     4. with max_split_size: release large cached blocks until the request fits; repeat step 2
 *     5. wait for all events, release all segments that are one free block; repeat step 2
 *     6. fail with OUT_OF_MEMORY (report.c)
 *
 * The statistics are CUDA's, with CUDA's numbers. While the lock of a device is free and
 * last_allocation has been flushed, these invariants hold; openreg_memory_is_valid (check.c) checks
 * them:
 *
 *     the blocks of a segment cover it: block.address + block.bytes == block.next.address
 *     block.state == FREE        =>  block.next.state != FREE, and it is in its pool's tree
 *     block.state == ALLOCATED  <=>  address_map[unit of block.address] == block
 *     block.events               ==  its entries in the stream_use queues of all streams
 *     allocated_bytes            ==  sum of blocks that are ALLOCATED or AWAITING_IMPORTERS
 *     active_bytes               ==  allocated_bytes + sum of blocks that are AWAITING_STREAMS
 *     reserved_bytes             ==  sum of segments; of expandable ones the mapped part
 *     reserved_bytes             ==  active_bytes + sum of blocks that are FREE
 *     inactive_split_bytes       ==  sum of FREE blocks that are only a part of their segment
 *
 * The last one excludes expandable segments. Four things differ from a GPU:
 *
 *   - Blocks that other processes imported stay allocated until those release them (shared.c).
 *   - A block waits for its own stream while that stream has pending inline work (events.c).
 *   - With OPENREG_DEBUG_MEMORY=1 each block is 512 bytes longer (debug.c).
 *   - The arena decides the addresses (segment.c).
 *
 * Each device has one allocator with one lock. It is created on first use and lives as long as the
 * process. Allocators share nothing, so devices never wait for each other. The allocator does not
 * hold its lock while it waits for a stream. A process that was forked after initialization has no
 * devices and drops the allocators: a thread that does not exist there may have held a lock.
 */
#include "allocator/fast_path.h"
#include "allocator/stats.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic(struct allocator *) allocators[OPENREG_MAX_DEVICES];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- the allocator of a device --------------------------------------------------------------- */

static struct allocator *allocator_make(int device, char *base, size_t arena_bytes) {
  openreg_device_properties properties;
  if (openreg_device_get_properties(device, &properties) != OPENREG_OK)
    return NULL;
  size_t starts_bytes = arena_bytes / GRANULE_BYTES * sizeof(struct address_map *);
  struct allocator *allocator = openreg_pages_map(sizeof *allocator + starts_bytes);
  if (!allocator)
    return NULL;
  allocator->device = device;
  allocator->base = base;
  allocator->arena_bytes = arena_bytes;
  allocator->capacity = properties.total_memory_bytes;
  allocator->address_map = (struct address_map **)(allocator + 1);
  allocator->custom = openreg_custom_allocator_of_process();
  allocator->blocks.record_bytes = sizeof(struct block);
  allocator->segments.record_bytes = sizeof(struct segment);
  allocator->stream_uses.record_bytes = sizeof(struct stream_use);
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++)
    allocator->pools[kind].kind = kind;
  openreg_events_initialize(allocator);
  openreg_settings_initialize(allocator);
  if (!openreg_debug_initialize(allocator))
    return NULL;
  return allocator;
}

/* Returns the device's allocator if the device was used and can still be used, else NULL. Most
 * calls need only this. */
struct allocator *openreg_allocator_ready(int device) {
  if ((unsigned)device >= OPENREG_MAX_DEVICES)
    return NULL;
  return atomic_load_explicit(&allocators[device], memory_order_acquire);
}

openreg_status openreg_allocator_get_existing(int device, struct allocator **allocator) {
  *allocator = openreg_allocator_ready(device);
  if (*allocator)
    return OPENREG_OK;
  if (openreg_in_bad_fork())
    return openreg_require_no_bad_fork();
  int count;
  openreg_status status = openreg_device_count(&count);
  if (status != OPENREG_OK)
    return status;
  if (count == 0)
    return openreg_fail(OPENREG_INVALID_DEVICE, "openreg: this process has no devices");
  if (device < 0 || device >= count)
    return openreg_fail(OPENREG_INVALID_DEVICE, "openreg: device %d: expected 0 to %d", device,
                        count - 1);
  return OPENREG_OK;
}

/* Runs in a forked process. The process has no devices, and the thread that held a lock may not
 * exist there. */
static void drop_allocators_after_fork(void) {
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++)
    atomic_store_explicit(&allocators[device], NULL, memory_order_relaxed);
}

static bool register_fork_handler(void) {
  static bool watching;
  int error = watching ? 0 : pthread_atfork(NULL, NULL, drop_allocators_after_fork);
  watching = error == 0;
  if (!watching)
    openreg_fail(OPENREG_SYSTEM, "openreg: cannot register a fork handler: %s", strerror(error));
  return watching;
}

openreg_status openreg_allocator_open(int device, struct allocator **allocator) {
  openreg_status status = openreg_allocator_get_existing(device, allocator);
  if (status != OPENREG_OK || *allocator)
    return status;
  void *base;
  size_t bytes;
  status = openreg_arena_get(device, &base, &bytes);
  if (status != OPENREG_OK)
    return status;
  pthread_mutex_lock(&making);
  *allocator = atomic_load_explicit(&allocators[device], memory_order_relaxed);
  if (!*allocator && register_fork_handler()) {
    *allocator = allocator_make(device, base, bytes);
    atomic_store_explicit(&allocators[device], *allocator, memory_order_release);
  }
  pthread_mutex_unlock(&making);
  return *allocator ? OPENREG_OK : OPENREG_SYSTEM;
}

struct allocator *openreg_allocator_of_block(const struct block *block) {
  return atomic_load_explicit(&allocators[block->base.device], memory_order_acquire);
}

openreg_status openreg_allocator_wait_idle(struct allocator *allocator) {
  allocator_unlock(allocator);
  openreg_status status = openreg_device_drain(allocator->device);
  allocator_lock(allocator);
  allocator->has_waited = status == OPENREG_OK;
  return status;
}

/* ---- allocating ------------------------------------------------------------------------------ */

static openreg_status allocate_empty(struct allocator *allocator, int stream,
                                     openreg_block **result) {
  if (!slab_ensure(&allocator->blocks, 1))
    return OPENREG_SYSTEM;
  struct block *block = block_take_record(allocator);
  *block = (struct block){.base = {.device = allocator->device, .stream = stream},
                          .state = BLOCK_ALLOCATED};
  allocator->empty_blocks++;
  *result = &block->base;
  return OPENREG_OK;
}

/* Takes free memory of the private pools that were created with use_on_oom. */
static struct block *allocate_from_private_pools(struct allocator *allocator,
                                                 struct request *request) {
  if (request->mempool != 0)
    return NULL;
  for (uint64_t mempool = 0; (mempool = openreg_mempool_next_on_oom(mempool)) != 0;) {
    struct private_pool *own = openreg_private_pool_find(allocator, mempool);
    if (!own)
      continue;
    struct request there = *request;
    there.mempool = mempool;
    there.pool = &own->pools[request->pool->kind];
    there.is_expandable = false;
    struct block *block = openreg_pool_take(allocator, &there);
    if (!block)
      continue;
    *request = there;
    return block;
  }
  return NULL;
}

/* Steps 1 to 5 of the policy, for a request that no free block of its pool serves. */
static openreg_status allocate_from_elsewhere(struct allocator *allocator, struct request *request,
                                              struct block **block) {
  openreg_status status = openreg_collect_garbage(allocator);
  if (status == OPENREG_OK)
    status = openreg_segment_reserve(allocator, request, block);
  if (status != OPENREG_OUT_OF_MEMORY || request->is_rejected)
    return status;
  *block = allocate_from_private_pools(allocator, request);
  if (*block)
    return OPENREG_OK;
  status = openreg_release_oversize(allocator, request);
  if (status == OPENREG_OK)
    status = openreg_segment_reserve(allocator, request, block);
  if (status != OPENREG_OUT_OF_MEMORY || request->is_rejected)
    return status;
  status = openreg_allocator_empty(allocator, NULL);
  if (status != OPENREG_OK)
    return status;
  allocator->stats.alloc_retries++;
  return openreg_segment_reserve(allocator, request, block);
}

static struct block *allocate_from_cache(struct allocator *allocator,
                                         const struct request *request) {
  struct block *block = openreg_pool_take(allocator, request);
  if (block || !allocator->awaiting_importers || !openreg_shared_poll(allocator))
    return block;
  return openreg_pool_take(allocator, request);
}

static openreg_status allocate_uncached(struct allocator *allocator, struct request *request,
                                        openreg_block **result) {
  struct block *block;
  openreg_status status = openreg_uncached_allocate(allocator, request, &block);
  if (status == OPENREG_OUT_OF_MEMORY)
    return openreg_report_out_of_memory(allocator, request);
  if (status == OPENREG_OK)
    *result = openreg_block_mark_allocated(allocator, block, request);
  return status;
}

static openreg_status allocate(struct allocator *allocator, struct request *request,
                               openreg_block **result) {
  if (request->bytes == 0)
    return allocate_empty(allocator, request->stream, result);
  request->is_rejected = request->bytes >= MOST_REQUESTED_BYTES;
  if (request->is_rejected)
    return openreg_report_out_of_memory(allocator, request);
  if (allocator->event_count || allocator->awaiting_idle)
    openreg_events_process(allocator);
  if (allocator->settings.is_cache_off || allocator->custom.allocate)
    return allocate_uncached(allocator, request, result);
  if (!slab_ensure(&allocator->blocks, 1) || !openreg_request_complete(allocator, request))
    return OPENREG_SYSTEM;
  struct block *block = allocate_from_cache(allocator, request);
  bool was_cached = block != NULL;
  if (!was_cached) {
    openreg_status status = allocate_from_elsewhere(allocator, request, &block);
    if (status == OPENREG_OUT_OF_MEMORY)
      return openreg_report_out_of_memory(allocator, request);
    if (status != OPENREG_OK)
      return status;
  }
  *result = openreg_block_mark_allocated(allocator, block, request);
  if (was_cached)
    fast_path_offer(allocator, block);
  return OPENREG_OK;
}

static openreg_status refuse(openreg_block **block, int stream) {
  if (!block)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_allocate: block is NULL");
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg_block_allocate: stream %d: expected 0 to %d", stream,
                      OPENREG_STREAMS_PER_DEVICE - 1);
}

/* Allocates through the pools. Takes ownership of `stack`, and releases the lock. */
static openreg_status allocate_slow_path(struct allocator *allocator, int stream, size_t bytes,
                                         uint64_t mempool, struct stack *stack,
                                         openreg_block **block) {
  struct request request = {.bytes = bytes, .mempool = mempool, .stream = stream, .stack = stack};
  allocator_flush_fast_path(allocator);
  openreg_status status = allocate(allocator, &request, block);
  allocator_unlock(allocator);
  if (stack)
    openreg_debug_drop_stack(stack);
  return status;
}

openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block) {
  struct allocator *allocator = openreg_allocator_ready(device);
  if (__builtin_expect(!allocator, 0)) {
    openreg_status status = openreg_allocator_open(device, &allocator);
    if (status != OPENREG_OK)
      return status;
  }
  if (__builtin_expect(!block || (unsigned)stream >= OPENREG_STREAMS_PER_DEVICE, 0))
    return refuse(block, stream);
  uint64_t mempool = mempool_current(device, stream);
  struct stack *stack = memory_debug_is_on() ? openreg_debug_capture_stack() : NULL;
  lock_take(&allocator->lock);
  openreg_block *allocated = allocate_fast_path(allocator, stream, bytes, mempool);
  if (!allocated)
    return allocate_slow_path(allocator, stream, bytes, mempool, stack, block);
  *block = allocated;
  lock_give(&allocator->lock);
  return OPENREG_OK;
}

/* ---- freeing --------------------------------------------------------------------------------- */

void openreg_allocator_return_block(struct allocator *allocator, struct block *block) {
  if (block_is_uncached(block)) {
    openreg_uncached_free(allocator, block);
    return;
  }
  openreg_block_count_freed(allocator, block);
  if (block->stream_uses ||
      openreg_stream_has_pending_inline(allocator->device, block->base.stream))
    openreg_events_defer(allocator, block);
  else
    openreg_block_mark_free(allocator, block);
}

/* Frees any block but the one that was allocated last. Releases the lock. */
static void free_slow_path(struct allocator *allocator, struct block *block) {
  allocator_flush_fast_path(allocator);
  if (block->is_shared) {
    openreg_shared_free(allocator, block);
  } else if (block->base.bytes == 0) {
    allocator->empty_blocks--;
    block_put_record(allocator, block);
  } else {
    assert(block->state == BLOCK_ALLOCATED);
    __atomic_store_n(address_map_slot(allocator, block->base.address), NULL, __ATOMIC_RELAXED);
    openreg_allocator_return_block(allocator, block);
  }
  allocator_unlock(allocator);
}

void openreg_block_free(openreg_block *base) {
  if (!base)
    return;
  struct block *block = block_of(base);
  struct allocator *allocator = openreg_allocator_of_block(block);
  if (!allocator) /* in a forked process: the memory belongs to the parent */
    return;
  lock_take(&allocator->lock);
  if (free_fast_path(allocator, block))
    lock_give(&allocator->lock);
  else
    free_slow_path(allocator, block);
}

/* Takes no lock: a caller that looks up an allocated block has its address from the allocation. */
openreg_block *openreg_block_find(const void *address) {
  struct allocator *allocator = openreg_allocator_ready(openreg_arena_device_of(address));
  if (!allocator || (uintptr_t)address % UNIT_BYTES != 0)
    return NULL;
  if ((size_t)((const char *)address - allocator->base) >= allocator->arena_bytes)
    return openreg_shared_find(allocator, address);
  size_t granule = (size_t)((const char *)address - allocator->base) / GRANULE_BYTES;
  if (!__atomic_load_n(&allocator->address_map[granule], __ATOMIC_ACQUIRE))
    return NULL;
  struct block *block = __atomic_load_n(address_map_slot(allocator, address), __ATOMIC_ACQUIRE);
  return block ? &block->base : NULL;
}
