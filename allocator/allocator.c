/* allocator.c: the policy, which is that of PyTorch's CUDA caching allocator, and the functions
 * that allocate and free by it.
 *
 * The driver is slow and waits for the device, so memory that a program frees is kept. A *segment*
 * is what was had from the driver: 2 MiB for requests of up to 1 MiB, which is the small pool; 20
 * MiB for those below 10 MiB, and multiples of 2 MiB that fit for the rest, which is the large
 * pool. Segments are cut into *blocks*, all of one stream: what its work frees, its later work may
 * have at once. A request gets, of its pool and stream, the smallest free block that is long
 * enough, of equals the one in the oldest segment (pool.c); the front of it, when what is left is
 * worth a block: 512 bytes in the small pool, more than 1 MiB in the large one (split.c). Freed
 * blocks become one with free neighbours of their segment. Those that other streams use wait for
 * these (events.c).
 *
 * When no block fits, it goes on in this order, until something does:
 *
 *     1. with a limit and a garbage_collection_threshold: old segments are given back (reclaim.c)
 *     2. a new segment, if the limit and the device allow it (segment.c, expandable.c)
 *     3. the free memory of private pools that were made with use_on_oom
 *     4. with max_split_size: large cached blocks are given back until it fits, and 2 again
 *     5. all events are waited for, all segments that are one free block are given back, and 2
 * again
 *     6. OUT_OF_MEMORY (report.c)
 *
 * The statistics are CUDA's, and so are the numbers in them. Whenever a device's lock is free and
 * `again` was accounted for, openreg_memory_is_valid (check.c) finds that
 *
 *     a segment's blocks cover it: block.address + block.bytes == block.next.address
 *     block.state == FREE        =>  block.next.state != FREE, and it is in its pool's tree
 *     block.state == ALLOCATED  <=>  starts[unit of block.address] == block
 *     block.events               ==  the uses of it in all streams' queues
 *     allocated_bytes            ==  sum of blocks that are ALLOCATED or AWAITING_IMPORTERS
 *     active_bytes               ==  allocated_bytes + sum of blocks that are AWAITING_STREAMS
 *     reserved_bytes             ==  sum of segments, of expandable ones as far as mapped
 *     reserved_bytes             ==  active_bytes + sum of blocks that are FREE
 *     inactive_split_bytes       ==  sum of FREE blocks that are not all of their segment
 *
 * the last but for expandable segments. Four things differ from a GPU: blocks that other processes
 * have stay allocated until these let go of them (shared.c); a block waits for its own stream where
 * work runs inline ahead (events.c); with OPENREG_DEBUG_MEMORY=1 each block is 512 bytes longer
 * (debug.c); and where memory lies is the arena's affair (segment.c).
 *
 * Each device has one allocator and one lock, made on first use and kept for the life of the
 * process. Allocators share nothing, so that devices never wait for each other. Locks are not held
 * while waiting for a stream. A process forked after initialization has no devices, and forgets
 * their allocators: a lock may have been held by a thread that does not exist there.
 */
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
  size_t starts_bytes = arena_bytes / GRANULE_BYTES * sizeof(struct starts *);
  struct allocator *allocator = openreg_pages_map(sizeof *allocator + starts_bytes);
  if (!allocator)
    return NULL;
  allocator->device = device;
  allocator->base = base;
  allocator->arena_bytes = arena_bytes;
  allocator->capacity = properties.total_memory_bytes;
  allocator->starts = (struct starts **)(allocator + 1);
  allocator->source = openreg_source_of_process();
  allocator->blocks.record_bytes = sizeof(struct block);
  allocator->segments.record_bytes = sizeof(struct segment);
  allocator->uses.record_bytes = sizeof(struct use);
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++)
    allocator->pools[kind].kind = kind;
  openreg_events_initialize(allocator);
  openreg_settings_initialize(allocator);
  if (!openreg_debug_open(allocator))
    return NULL;
  return allocator;
}

/* What most calls need: the device's allocator if it was used and can still be, else NULL. */
struct allocator *openreg_allocator_ready(int device) {
  if ((unsigned)device >= OPENREG_MAX_DEVICES)
    return NULL;
  return atomic_load_explicit(&allocators[device], memory_order_acquire);
}

openreg_status openreg_allocator_peek(int device, struct allocator **allocator) {
  *allocator = openreg_allocator_ready(device);
  if (*allocator)
    return OPENREG_OK;
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK, "openreg: devices cannot be used in a process forked "
                                          "after they were initialized: start it with spawn");
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

/* In a forked process. It has no devices, and whoever had a lock may not be there. */
static void forget_allocators(void) {
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++)
    atomic_store_explicit(&allocators[device], NULL, memory_order_relaxed);
}

static bool watch_forks(void) {
  static bool watching;
  int error = watching ? 0 : pthread_atfork(NULL, NULL, forget_allocators);
  watching = error == 0;
  if (!watching)
    openreg_fail(OPENREG_SYSTEM, "openreg: no host memory to be told of forks: %s",
                 strerror(error));
  return watching;
}

openreg_status openreg_allocator_open(int device, struct allocator **allocator) {
  openreg_status status = openreg_allocator_peek(device, allocator);
  if (status != OPENREG_OK || *allocator)
    return status;
  void *base;
  size_t bytes;
  status = openreg_arena_get(device, &base, &bytes);
  if (status != OPENREG_OK)
    return status;
  pthread_mutex_lock(&making);
  *allocator = atomic_load_explicit(&allocators[device], memory_order_relaxed);
  if (!*allocator && watch_forks()) {
    *allocator = allocator_make(device, base, bytes);
    atomic_store_explicit(&allocators[device], *allocator, memory_order_release);
  }
  pthread_mutex_unlock(&making);
  return *allocator ? OPENREG_OK : OPENREG_SYSTEM;
}

struct allocator *openreg_allocator_of(const struct block *block) {
  return atomic_load_explicit(&allocators[block->shown.device], memory_order_acquire);
}

openreg_status openreg_allocator_wait_idle(struct allocator *allocator) {
  allocator_unlock(allocator);
  openreg_status status = openreg_device_drain(allocator->device);
  allocator_lock(allocator);
  allocator->has_waited = status == OPENREG_OK;
  return status;
}

/* ---- the fast path: the same again ----------------------------------------------------------- */

/* Of the block that was allocated last: nothing is done, but for saying so. */
static bool free_again(struct allocator *allocator, struct block *block) {
  struct again *again = &allocator->again;
  if (again->block != block || block->uses || block->is_shared ||
      openreg_stream_has_inline_ahead(block->shown.device, block->shown.stream))
    return false;
  assert(!again->is_free && block->state == BLOCK_ALLOCATED);
  again->is_free = true;
  block->state = BLOCK_PARKED;
  __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
  return true;
}

/* The block that was freed last, for a request like the one that it served. */
static openreg_block *allocate_again(struct allocator *allocator, int stream, size_t bytes,
                                     uint64_t mempool) {
  struct again *again = &allocator->again;
  struct block *block = again->block;
  if (!again->is_free || block->shown.requested_bytes != bytes || block->shown.stream != stream ||
      pool_mempool(block->pool) != mempool || allocator->event_count || allocator->awaiting_idle)
    return NULL;
  again->is_free = false;
  again->times++;
  block->shown.user = NULL;
  block->state = BLOCK_ALLOCATED;
  __atomic_store_n(allocator_start(allocator, block->shown.address), block, __ATOMIC_RELEASE);
  return &block->shown;
}

/* Whether the next free and allocation may be left to `again`. */
static bool can_come_again(const struct allocator *allocator) {
  return !memory_is_observed() && !memory_is_debugged() &&
         (allocator->allowed_bytes == SIZE_MAX ||
          allocator->settings.garbage_collection_threshold == 0);
}

/* The program does not have a block any more, and no one else has. */
static void count_taken_back(struct allocator *allocator, struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  stats_decrease(stats->allocation, kind, 1);
  stats_decrease(stats->allocated_bytes, kind, block->shown.bytes);
  if (block->shown.bytes >= allocator->settings.max_split_bytes)
    stat_decrease(&stats->oversize_allocations, 1);
  if (memory_is_observed())
    openreg_observe_block(OPENREG_MEMORY_FREE_REQUESTED, block);
}

/* Frees and allocates a block once, and counts that as often as it was done. */
static void repeat_again(struct allocator *allocator, struct block *block, int64_t times) {
  const openreg_block shown = block->shown;
  const openreg_memory_stats before = allocator->stats;
  struct request request = {
      .bytes = shown.requested_bytes, .mempool = pool_mempool(block->pool), .stream = shown.stream};
  bool complete = openreg_request_complete(allocator, &request);
  count_taken_back(allocator, block);
  openreg_block_make_free(allocator, block);
  struct block *same = openreg_pool_take(allocator, &request);
  assert(complete && same == block && block->shown.address == shown.address);
  (void)complete;
  openreg_block_hand_out(allocator, same, &request);
  block->shown.user = shown.user;
  const openreg_memory_stats after = allocator->stats;
  openreg_stats_repeat(&allocator->stats, &before, &after, times - 1);
}

void openreg_allocator_account_again(struct allocator *allocator) {
  const struct again again = allocator->again;
  allocator->again = (struct again){0};
  if (again.times)
    repeat_again(allocator, again.block, again.times);
  if (again.is_free) {
    __atomic_store_n(allocator_start(allocator, again.block->shown.address), NULL,
                     __ATOMIC_RELAXED);
    count_taken_back(allocator, again.block);
    openreg_block_make_free(allocator, again.block);
  }
}

/* ---- the general path ------------------------------------------------------------------------ */

static openreg_status allocate_nothing(struct allocator *allocator, int stream,
                                       openreg_block **result) {
  if (!slab_ensure(&allocator->blocks, 1))
    return OPENREG_SYSTEM;
  struct block *block = block_take_record(allocator);
  *block = (struct block){.shown = {.device = allocator->device, .stream = stream},
                          .state = BLOCK_ALLOCATED};
  allocator->empty_blocks++;
  *result = &block->shown;
  return OPENREG_OK;
}

/* Memory that is free in private pools which were made for that. */
static struct block *take_from_private_pools(struct allocator *allocator, struct request *request) {
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

/* The steps of the policy for a request that no free block of its pool serves. */
static openreg_status find_elsewhere(struct allocator *allocator, struct request *request,
                                     struct block **block) {
  openreg_status status = openreg_collect_garbage(allocator);
  if (status == OPENREG_OK)
    status = openreg_segment_reserve(allocator, request, block);
  if (status != OPENREG_OUT_OF_MEMORY || request->is_rejected)
    return status;
  *block = take_from_private_pools(allocator, request);
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

static struct block *find_cached(struct allocator *allocator, const struct request *request) {
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
    *result = openreg_block_hand_out(allocator, block, request);
  return status;
}

static openreg_status allocate(struct allocator *allocator, struct request *request,
                               openreg_block **result) {
  if (request->bytes == 0)
    return allocate_nothing(allocator, request->stream, result);
  request->is_rejected = request->bytes >= MOST_REQUESTED_BYTES;
  if (request->is_rejected)
    return openreg_report_out_of_memory(allocator, request);
  if (allocator->event_count || allocator->awaiting_idle)
    openreg_events_process(allocator);
  if (allocator->settings.is_cache_off || allocator->source.allocate)
    return allocate_uncached(allocator, request, result);
  if (!slab_ensure(&allocator->blocks, 1) || !openreg_request_complete(allocator, request))
    return OPENREG_SYSTEM;
  struct block *block = find_cached(allocator, request);
  bool was_cached = block != NULL;
  if (!was_cached) {
    openreg_status status = find_elsewhere(allocator, request, &block);
    if (status == OPENREG_OUT_OF_MEMORY)
      return openreg_report_out_of_memory(allocator, request);
    if (status != OPENREG_OK)
      return status;
  }
  *result = openreg_block_hand_out(allocator, block, request);
  if (was_cached && can_come_again(allocator))
    allocator->again.block = block;
  return OPENREG_OK;
}

static openreg_status refuse(openreg_block **block, int stream) {
  if (!block)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_allocate: block is NULL");
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg_block_allocate: stream %d: expected 0 to %d", stream,
                      OPENREG_STREAMS_PER_DEVICE - 1);
}

/* An allocation that is not the same again. Takes a stack, and gives the lock back. */
__attribute__((noinline)) static openreg_status
allocate_unlike(struct allocator *allocator, int stream, size_t bytes, uint64_t mempool,
                struct stack *stack, openreg_block **block) {
  struct request request = {.bytes = bytes, .mempool = mempool, .stream = stream, .stack = stack};
  allocator_account(allocator);
  openreg_status status = allocate(allocator, &request, block);
  allocator_unlock(allocator);
  if (stack)
    openreg_debug_drop(stack);
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
  struct stack *stack = memory_is_debugged() ? openreg_debug_capture() : NULL;
  lock_take(&allocator->lock);
  openreg_block *again = allocate_again(allocator, stream, bytes, mempool);
  if (!again)
    return allocate_unlike(allocator, stream, bytes, mempool, stack, block);
  *block = again;
  lock_give(&allocator->lock);
  return OPENREG_OK;
}

/* ---- freeing --------------------------------------------------------------------------------- */

void openreg_allocator_take_back(struct allocator *allocator, struct block *block) {
  if (block_is_uncached(block)) {
    openreg_uncached_free(allocator, block);
    return;
  }
  count_taken_back(allocator, block);
  if (block->uses || openreg_stream_has_inline_ahead(allocator->device, block->shown.stream))
    openreg_events_defer(allocator, block);
  else
    openreg_block_make_free(allocator, block);
}

/* A free that is not of the block that was allocated last. Gives the lock back. */
__attribute__((noinline)) static void free_unlike(struct allocator *allocator,
                                                  struct block *block) {
  allocator_account(allocator);
  if (block->is_shared) {
    openreg_shared_free(allocator, block);
  } else if (block->shown.bytes == 0) {
    allocator->empty_blocks--;
    block_put_record(allocator, block);
  } else {
    assert(block->state == BLOCK_ALLOCATED);
    __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
    openreg_allocator_take_back(allocator, block);
  }
  allocator_unlock(allocator);
}

void openreg_block_free(openreg_block *shown) {
  if (!shown)
    return;
  struct block *block = block_of(shown);
  struct allocator *allocator = openreg_allocator_of(block);
  if (!allocator) /* the memory is the parent's */
    return;
  lock_take(&allocator->lock);
  if (free_again(allocator, block))
    lock_give(&allocator->lock);
  else
    free_unlike(allocator, block);
}

/* Without the lock: whoever asks for an allocated block learnt its address from its allocation. */
openreg_block *openreg_block_find(const void *address) {
  struct allocator *allocator = openreg_allocator_ready(openreg_arena_device_of(address));
  if (!allocator || (uintptr_t)address % UNIT_BYTES != 0)
    return NULL;
  if ((size_t)((const char *)address - allocator->base) >= allocator->arena_bytes)
    return openreg_shared_find(allocator, address);
  size_t granule = (size_t)((const char *)address - allocator->base) / GRANULE_BYTES;
  if (!__atomic_load_n(&allocator->starts[granule], __ATOMIC_ACQUIRE))
    return NULL;
  struct block *block = __atomic_load_n(allocator_start(allocator, address), __ATOMIC_ACQUIRE);
  return block ? &block->shown : NULL;
}
