/* allocator.c: the functions that allocate and free, and the devices' allocators.
 *
 * Each device has one allocator and one lock, made on first use and kept for the life of the
 * process. Allocators share nothing, so that devices never wait for each other. Locks are not held
 * while waiting for a stream. The ledger's lock is taken under an allocator's, never the other way
 * round. A process forked after initialization has no devices, and forgets their allocators: a lock
 * may have been held by a thread that does not exist there.
 */
#include "allocator/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { EMPTYING_ROUNDS = 64 };

static _Atomic(struct allocator *) allocators[OPENREG_MAX_DEVICES];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- the allocator of a device --------------------------------------------------------------- */

static struct allocator *allocator_make(int device, char *base, size_t bytes) {
  size_t starts_bytes = bytes / UNIT_BYTES * sizeof(struct block *);
  struct allocator *allocator = openreg_pages_map(sizeof *allocator + starts_bytes);
  if (!allocator)
    return NULL;
  allocator->device = device;
  allocator->base = base;
  allocator->capacity = allocator->allowed_bytes = bytes;
  allocator->fraction = 1;
  allocator->starts = (struct block **)(allocator + 1);
  allocator->blocks.record_bytes = sizeof(struct block);
  allocator->ranges.record_bytes = sizeof(struct range);
  openreg_segments_initialize(allocator, base, bytes);
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

/* ---- the same again -------------------------------------------------------------------------- */

static bool free_again(struct allocator *allocator, struct block *block) {
  struct again *again = &allocator->again;
  if (again->block != block ||
      openreg_stream_has_inline_ahead(block->shown.device, block->shown.stream))
    return false;
  assert(!again->is_free && block->state == BLOCK_ALLOCATED);
  again->is_free = true;
  block->state = BLOCK_PARKED;
  __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
  return true;
}

static bool allocate_again(struct allocator *allocator, int stream, size_t bytes, uint64_t mempool,
                           openreg_block **result) {
  struct again *again = &allocator->again;
  struct block *block = again->block;
  if (!again->is_free || block->shown.requested_bytes != bytes || block->shown.stream != stream ||
      block->pool->mempool != mempool || allocator->deferred)
    return false;
  again->is_free = false;
  again->times++;
  block->shown.user = NULL;
  block->state = BLOCK_ALLOCATED;
  __atomic_store_n(allocator_start(allocator, block->shown.address), block, __ATOMIC_RELEASE);
  *result = &block->shown;
  return true;
}

void openreg_allocator_account_again(struct allocator *allocator) {
  const struct again again = allocator->again;
  allocator->again = (struct again){0};
  if (again.times)
    stats_block_again(again.block, again.times, openreg_pool_free_change(again.block));
  if (again.is_free) {
    stats_block_freed(allocator, again.block);
    openreg_pool_free(allocator, again.block);
  }
}

/* ---- allocating ------------------------------------------------------------------------------ */

/* Makes a block that is not free any more the program's. */
static openreg_block *hand_out(struct allocator *allocator, struct block *block, int stream,
                               size_t bytes) {
  block->shown.requested_bytes = bytes;
  block->shown.user = NULL;
  block->shown.device = allocator->device;
  block->shown.stream = stream;
  block->state = BLOCK_ALLOCATED;
  return &block->shown;
}

static openreg_status allocate_nothing(struct allocator *allocator, int stream,
                                       openreg_block **result) {
  if (!slab_ensure(&allocator->blocks, 1))
    return OPENREG_SYSTEM;
  struct block *block = slab_take(&allocator->blocks);
  block->shown.address = NULL;
  block->shown.bytes = 0;
  block->pool = NULL;
  allocator->empty_blocks++;
  *result = hand_out(allocator, block, stream, 0);
  return OPENREG_OK;
}

/* Makes a block that was taken out of a pool the program's, when that changed the free memory's
 * figures by `change` all in all. */
static inline openreg_block *hand_out_memory(struct allocator *allocator, struct block *block,
                                             int stream, size_t bytes, struct splits change) {
  struct tally *tally = block->pool->tally;
  hand_out(allocator, block, stream, bytes);
  __atomic_store_n(allocator_start(allocator, block->shown.address), block, __ATOMIC_RELEASE);
  stats_block_allocated(allocator, tally, usage_of(block));
  stats_splits_changed(allocator, tally, change);
  return &block->shown;
}

/* The same, with all that is rare. */
static openreg_block *hand_out_watched(struct allocator *allocator, struct block *block,
                                       const struct request *request, struct splits change) {
  block->shown.bytes -= zone_bytes();
  hand_out_memory(allocator, block, request->stream, request->bytes, change);
  if (allocator->deferred)
    openreg_stats_raise_peaks(allocator);
  if (memory_is_debugged())
    openreg_debug_handed_out(allocator, block, request->stack);
  if (memory_is_observed())
    openreg_observe_block(OPENREG_MEMORY_ALLOCATED, block);
  return &block->shown;
}

static size_t rounded_up(size_t bytes) {
  return (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

/* For a request that no free block of its pool serves. */
static openreg_status reserve(struct allocator *allocator, struct pool *pool, size_t bytes,
                              struct block **block, struct splits *change) {
  if (allocator->awaiting) {
    openreg_shared_poll(allocator);
    *block = pool_take(allocator, pool, bytes, change);
    if (*block)
      return OPENREG_OK;
  }
  struct splits reserving = {0};
  openreg_status status = openreg_segment_reserve(allocator, pool, bytes, &reserving);
  if (status != OPENREG_OK)
    return status;
  *block = pool_take(allocator, pool, bytes, change);
  change->pieces += reserving.pieces;
  change->bytes += reserving.bytes;
  return OPENREG_OK;
}

static openreg_status allocate_once(struct allocator *allocator, const struct request *request,
                                    openreg_block **result) {
  if (request->bytes > allocator->capacity)
    return OPENREG_OUT_OF_MEMORY;
  size_t rounded = rounded_up(request->bytes);
  struct pool *pools = request->mempool == 0 ? allocator->pools[request->stream] : NULL;
  if (!pools)
    pools = openreg_pools_open(allocator, request->mempool, request->stream);
  /* A reservation needs a block and a range, a cut one more block. */
  if (!pools || !slab_ensure(&allocator->blocks, 2) || !slab_ensure(&allocator->ranges, 1))
    return OPENREG_SYSTEM;
  struct pool *pool = &pools[rounded > SMALL_BYTES];
  struct splits change;
  struct block *block = pool_take(allocator, pool, rounded + zone_bytes(), &change);
  if (!block) {
    openreg_status status = reserve(allocator, pool, rounded + zone_bytes(), &block, &change);
    if (status != OPENREG_OK)
      return status;
  }
  *result = hand_out_watched(allocator, block, request, change);
  return OPENREG_OK;
}

/* Serves a request from memory pools that were created for that. */
static openreg_status allocate_from_mempools(struct allocator *allocator,
                                             const struct request *request,
                                             openreg_block **result) {
  if (request->mempool != 0 || request->bytes > allocator->capacity)
    return OPENREG_OUT_OF_MEMORY;
  if (!slab_ensure(&allocator->blocks, 1))
    return OPENREG_SYSTEM;
  size_t rounded = rounded_up(request->bytes);
  for (uint64_t mempool = 0; (mempool = openreg_mempool_next_on_oom(mempool)) != 0;) {
    struct pool *pools = openreg_pools_find(allocator, mempool, request->stream);
    struct splits change;
    struct block *block =
        pools ? pool_take(allocator, &pools[rounded > SMALL_BYTES], rounded + zone_bytes(), &change)
              : NULL;
    if (!block)
      continue;
    *result = hand_out_watched(allocator, block, request, change);
    return OPENREG_OK;
  }
  return OPENREG_OUT_OF_MEMORY;
}

/* The lock is not held while waiting, for what is waited for may need it. So there may be new work
 * when it was taken again, and it is waited once more, within reason. */
openreg_status openreg_allocator_empty(struct allocator *allocator, const uint64_t *only) {
  openreg_status status = OPENREG_NOT_READY;
  for (int round = 0; status == OPENREG_NOT_READY && round < EMPTYING_ROUNDS; round++) {
    status = openreg_deferred_wait(allocator);
    if (status != OPENREG_OK)
      return status;
    allocator->stats.stream_syncs++;
    status = openreg_segments_release(allocator, only);
  }
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

static openreg_status allocate_after_emptying(struct allocator *allocator,
                                              const struct request *request,
                                              openreg_block **result) {
  allocator->stats.alloc_retries++;
  openreg_status status = openreg_allocator_empty(allocator, NULL);
  if (status != OPENREG_OK)
    return status;
  status = allocate_once(allocator, request, result);
  if (status == OPENREG_OUT_OF_MEMORY)
    status = allocate_from_mempools(allocator, request, result);
  if (status != OPENREG_OUT_OF_MEMORY)
    return status;
  allocator->stats.ooms++;
  return openreg_report_out_of_memory(allocator, request);
}

__attribute__((noinline)) static openreg_status
allocate(struct allocator *allocator, const struct request *request, openreg_block **result) {
  if (allocator->deferred)
    openreg_deferred_poll(allocator);
  if (request->bytes == 0)
    return allocate_nothing(allocator, request->stream, result);
  openreg_status status = allocate_once(allocator, request, result);
  if (__builtin_expect(status != OPENREG_OUT_OF_MEMORY, 1))
    return status;
  return allocate_after_emptying(allocator, request, result);
}

static openreg_status refuse(openreg_block **block, int stream) {
  if (!block)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_allocate: block is NULL");
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg_block_allocate: stream %d: expected 0 to %d", stream,
                      OPENREG_STREAMS_PER_DEVICE - 1);
}

/* ---- the short way --------------------------------------------------------------------------- */

/* An allocation with nothing about it that is rare, without OPENREG_DEBUG_MEMORY; NULL when there
 * is, and nothing has changed. The pools may be NULL. */
static inline openreg_block *allocate_cached(struct allocator *allocator, struct pool *pools,
                                             int stream, size_t bytes) {
  if (__builtin_expect(!pools || bytes - 1 >= allocator->capacity || allocator->deferred ||
                           allocator->blocks.available == 0 || memory_is_observed(),
                       0))
    return NULL;
  size_t rounded = rounded_up(bytes);
  struct splits change;
  struct block *block = pool_take(allocator, &pools[rounded > SMALL_BYTES], rounded, &change);
  if (__builtin_expect(!block, 0))
    return NULL;
  allocator->again.block = block;
  return hand_out_memory(allocator, block, stream, bytes, change);
}

/* The rest of an allocation, with the lock, which is given back. */
__attribute__((noinline)) static openreg_status allocate_uncached(struct allocator *allocator,
                                                                  const struct request *request,
                                                                  openreg_block **result) {
  openreg_status status = allocate(allocator, request, result);
  allocator_unlock(allocator);
  if (request->stack)
    openreg_debug_drop(request->stack);
  return status;
}

__attribute__((noinline)) static openreg_status allocate_locked(struct allocator *allocator,
                                                                struct pool *pools, int stream,
                                                                size_t bytes, uint64_t mempool,
                                                                openreg_block **result) {
  allocator_account(allocator);
  openreg_block *block = allocate_cached(allocator, pools, stream, bytes);
  if (__builtin_expect(!block, 0)) {
    const struct request request = {.bytes = bytes, .mempool = mempool, .stream = stream};
    return allocate_uncached(allocator, &request, result);
  }
  *result = block;
  lock_give(&allocator->lock);
  return OPENREG_OK;
}

/* An allocation by a thread that has no seat, or about which something is rare. */
__attribute__((noinline)) static openreg_status
allocate_rarely(int device, int stream, size_t bytes, openreg_block **result) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_open(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!result || (unsigned)stream >= OPENREG_STREAMS_PER_DEVICE)
    return refuse(result, stream);
  const struct request request = {bytes, mempool_current(device), stream,
                                  memory_is_debugged() ? openreg_debug_capture() : NULL};
  lock_take(&allocator->lock);
  if (allocate_again(allocator, stream, bytes, request.mempool, result)) {
    lock_give(&allocator->lock);
    return OPENREG_OK;
  }
  if (memory_is_debugged()) {
    allocator_account(allocator);
    return allocate_uncached(allocator, &request, result);
  }
  struct pool *pools = request.mempool == 0
                           ? allocator->pools[stream]
                           : openreg_pools_find(allocator, request.mempool, stream);
  return allocate_locked(allocator, pools, stream, bytes, request.mempool, result);
}

/* Calls nothing but at its end, and so saves no registers; nor does a free. */
openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block) {
  struct allocator *allocator = openreg_allocator_ready(device);
  if (__builtin_expect(!allocator || !block || (unsigned)stream >= OPENREG_STREAMS_PER_DEVICE ||
                           mempools_were_made() || memory_is_debugged() ||
                           !lock_take_seated(&allocator->lock),
                       0))
    return allocate_rarely(device, stream, bytes, block);
  if (!allocate_again(allocator, stream, bytes, 0, block))
    return allocate_locked(allocator, allocator->pools[stream], stream, bytes, 0, block);
  lock_give(&allocator->lock);
  return OPENREG_OK;
}

/* ---- freeing --------------------------------------------------------------------------------- */

void openreg_allocator_take_back(struct allocator *allocator, struct block *block) {
  if (memory_is_observed())
    openreg_observe_block(OPENREG_MEMORY_FREE_REQUESTED, block);
  stats_block_freed(allocator, block);
  if (openreg_stream_has_inline_ahead(allocator->device, block->shown.stream))
    block_add_stream(block, block->shown.stream); /* its own: see deferred.c */
  if (block_has_streams(block) && openreg_block_is_busy(block))
    openreg_deferred_push(allocator, block);
  else
    openreg_pool_free(allocator, block);
}

/* A free with nothing about it that is rare: false, and nothing has changed. */
static inline bool free_to_cache(struct allocator *allocator, struct block *block) {
  if (__builtin_expect(block->is_shared || block->shown.bytes == 0 || block_has_streams(block) ||
                           memory_is_observed() || memory_is_debugged() ||
                           openreg_stream_has_inline_ahead(allocator->device, block->shown.stream),
                       0))
    return false;
  assert(block->state == BLOCK_ALLOCATED);
  __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
  stats_block_freed(allocator, block);
  pool_put_counted(allocator, block);
  return true;
}

__attribute__((noinline)) static void free_block(struct allocator *allocator, struct block *block) {
  if (__builtin_expect(block->is_shared, 0)) {
    openreg_shared_free(allocator, block);
    return;
  }
  assert(block->state == BLOCK_ALLOCATED);
  if (block->shown.bytes == 0) {
    allocator->empty_blocks--;
    slab_put(&allocator->blocks, block);
    return;
  }
  __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
  openreg_allocator_take_back(allocator, block);
}

__attribute__((noinline)) static void free_locked(struct allocator *allocator,
                                                  struct block *block) {
  allocator_account(allocator);
  if (!free_to_cache(allocator, block))
    free_block(allocator, block);
  allocator_unlock(allocator);
}

/* Of the block that was allocated last, as far as `again` knows. */
__attribute__((noinline)) static void free_last(struct allocator *allocator, struct block *block) {
  if (free_again(allocator, block))
    lock_give(&allocator->lock);
  else
    free_locked(allocator, block);
}

__attribute__((noinline)) static void free_unseated(struct allocator *allocator,
                                                    struct block *block) {
  lock_take(&allocator->lock);
  free_last(allocator, block);
}

void openreg_block_free(openreg_block *shown) {
  if (!shown)
    return;
  struct block *block = block_of(shown);
  struct allocator *allocator = openreg_allocator_of(block);
  if (!allocator) /* the memory is the parent's */
    return;
  if (__builtin_expect(!lock_take_seated(&allocator->lock), 0))
    free_unseated(allocator, block);
  else if (allocator->again.block == block)
    free_last(allocator, block);
  else
    free_locked(allocator, block);
}

/* Without the lock: whoever asks for an allocated block learnt its address from its allocation. */
openreg_block *openreg_block_find(const void *address) {
  struct allocator *allocator = openreg_allocator_ready(openreg_arena_device_of(address));
  if (!allocator || (uintptr_t)address % UNIT_BYTES != 0)
    return NULL;
  if ((size_t)((const char *)address - allocator->base) >= allocator->capacity)
    return openreg_shared_find(allocator, address);
  struct block *block = __atomic_load_n(allocator_start(allocator, address), __ATOMIC_ACQUIRE);
  return block ? &block->shown : NULL;
}
