/* allocator.c: the functions that allocate and free, and the devices' allocators.
 *
 * Each device has one allocator and one lock, made on first use and kept for the life of the
 * process. Allocators share nothing, so that devices never wait for each other. Locks are not held
 * while waiting for a stream. The ledger's lock is taken under an allocator's, never the other way
 * round. A process forked after initialization has no devices, and forgets their allocators: a lock
 * may have been held by a thread that does not exist there.
 */
#include "internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { EMPTYING_ROUNDS = 64 };

static _Atomic(struct allocator *) allocators[OPENREG_MAX_DEVICES];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- the allocator of a device --------------------------------------------------------------- */

static struct allocator *allocator_make(int device, char *base, size_t bytes) {
  size_t starts_bytes = bytes / UNIT_BYTES * sizeof(struct block *);
  struct allocator *allocator = pages_map(sizeof *allocator + starts_bytes);
  if (!allocator)
    return NULL;
  allocator->device = device;
  allocator->base = base;
  allocator->capacity = allocator->allowed_bytes = bytes;
  allocator->fraction = 1;
  allocator->starts = (struct block **)(allocator + 1);
  allocator->blocks.record_bytes = sizeof(struct block);
  allocator->ranges.record_bytes = sizeof(struct range);
  segments_initialize(allocator, base, bytes);
  if (!debug_open(allocator))
    return NULL;
  return allocator;
}

/* What most calls need: the device's allocator if it was used and can still be, else NULL. */
struct allocator *allocator_ready(int device) {
  if ((unsigned)device >= OPENREG_MAX_DEVICES)
    return NULL;
  return atomic_load_explicit(&allocators[device], memory_order_acquire);
}

openreg_status allocator_peek(int device, struct allocator **allocator) {
  *allocator = allocator_ready(device);
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

openreg_status allocator_open(int device, struct allocator **allocator) {
  openreg_status status = allocator_peek(device, allocator);
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

struct allocator *allocator_of(const struct block *block) {
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

void allocator_account_again(struct allocator *allocator) {
  const struct again again = allocator->again;
  allocator->again = (struct again){0};
  if (again.times)
    stats_block_again(allocator, again.block, again.times, pool_put_change(again.block));
  if (again.is_free) {
    stats_block_freed(allocator, again.block);
    pool_free(allocator, again.block);
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

/* Makes a block that was taken out of a pool the program's. */
static void hand_out_memory(struct allocator *allocator, struct block *block,
                            const struct request *request, openreg_block **result) {
  block->shown.bytes -= zone_bytes();
  *result = hand_out(allocator, block, request->stream, request->bytes);
  if (memory_is_debugged())
    debug_handed_out(allocator, block, request->stack);
  __atomic_store_n(allocator_start(allocator, block->shown.address), block, __ATOMIC_RELEASE);
  stats_block_allocated(allocator, block);
  stats_settle_splits(allocator, block->pool->kind);
  if (memory_is_observed())
    observe_block(OPENREG_MEMORY_ALLOCATED, block);
}

static size_t rounded_up(size_t bytes) {
  return (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

/* For a request that no free block of its pool serves. */
static openreg_status reserve(struct allocator *allocator, struct pool *pool, size_t bytes,
                              struct block **block) {
  if (allocator->lent) {
    lent_poll(allocator);
    *block = pool_take(allocator, pool, bytes);
    if (*block)
      return OPENREG_OK;
  }
  openreg_status status = segment_reserve(allocator, pool, bytes);
  if (status == OPENREG_OK)
    *block = pool_take(allocator, pool, bytes);
  return status;
}

static openreg_status allocate_once(struct allocator *allocator, const struct request *request,
                                    openreg_block **result) {
  if (request->bytes > allocator->capacity)
    return OPENREG_OUT_OF_MEMORY;
  size_t rounded = rounded_up(request->bytes);
  struct pool *pools = request->mempool == 0 ? allocator->pools[request->stream] : NULL;
  if (!pools)
    pools = pools_open(allocator, request->mempool, request->stream);
  /* A reservation needs a block and a range, a cut one more block. */
  if (!pools || !slab_ensure(&allocator->blocks, 2) || !slab_ensure(&allocator->ranges, 1))
    return OPENREG_SYSTEM;
  struct pool *pool = &pools[rounded > SMALL_BYTES];
  struct block *block = pool_take(allocator, pool, rounded + zone_bytes());
  allocator->again.block = memory_is_observed() || memory_is_debugged() ? NULL : block;
  if (!block) {
    openreg_status status = reserve(allocator, pool, rounded + zone_bytes(), &block);
    if (status != OPENREG_OK)
      return status;
  }
  hand_out_memory(allocator, block, request, result);
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
  for (uint64_t mempool = 0; (mempool = mempool_next_on_oom(mempool)) != 0;) {
    struct pool *pools = pools_find(allocator, mempool, request->stream);
    struct block *block =
        pools ? pool_take(allocator, &pools[rounded > SMALL_BYTES], rounded + zone_bytes()) : NULL;
    if (!block)
      continue;
    hand_out_memory(allocator, block, request, result);
    return OPENREG_OK;
  }
  return OPENREG_OUT_OF_MEMORY;
}

/* The lock is not held while waiting, for what is waited for may need it. So there may be new work
 * when it was taken again, and it is waited once more, within reason. */
openreg_status allocator_empty(struct allocator *allocator, const uint64_t *only) {
  openreg_status status = OPENREG_NOT_READY;
  for (int round = 0; status == OPENREG_NOT_READY && round < EMPTYING_ROUNDS; round++) {
    status = deferred_wait(allocator);
    if (status != OPENREG_OK)
      return status;
    allocator->stats.stream_syncs++;
    status = segments_release(allocator, only);
  }
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

static openreg_status allocate_after_emptying(struct allocator *allocator,
                                              const struct request *request,
                                              openreg_block **result) {
  allocator->stats.alloc_retries++;
  openreg_status status = allocator_empty(allocator, NULL);
  if (status != OPENREG_OK)
    return status;
  status = allocate_once(allocator, request, result);
  if (status == OPENREG_OUT_OF_MEMORY)
    status = allocate_from_mempools(allocator, request, result);
  if (status != OPENREG_OUT_OF_MEMORY)
    return status;
  allocator->stats.ooms++;
  return report_out_of_memory(allocator, request);
}

static openreg_status allocate(struct allocator *allocator, const struct request *request,
                               openreg_block **result) {
  if (allocator->deferred)
    deferred_poll(allocator);
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

/* The rest of an allocation, with the lock, which is given back. Not inlined, nor is that of a
 * free, so that the short way saves no registers. */
__attribute__((noinline)) static openreg_status
allocate_locked(struct allocator *allocator, int stream, size_t bytes, uint64_t mempool,
                struct stack *stack, openreg_block **block) {
  const struct request request = {bytes, mempool, stream, stack};
  allocator_account(allocator);
  openreg_status status = allocate(allocator, &request, block);
  allocator_unlock(allocator);
  if (stack)
    debug_drop(stack);
  return status;
}

openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block) {
  struct allocator *allocator = allocator_ready(device);
  if (__builtin_expect(!allocator, 0)) {
    struct allocator *opened;
    openreg_status status = allocator_open(device, &opened);
    if (status != OPENREG_OK)
      return status;
    allocator = opened;
  }
  if (__builtin_expect(!block || (unsigned)stream >= OPENREG_STREAMS_PER_DEVICE, 0))
    return refuse(block, stream);
  const uint64_t mempool = mempool_current(device);
  struct stack *stack = memory_is_debugged() ? debug_capture() : NULL;
  lock_take(&allocator->lock);
  if (!allocate_again(allocator, stream, bytes, mempool, block))
    return allocate_locked(allocator, stream, bytes, mempool, stack, block);
  lock_give(&allocator->lock);
  return OPENREG_OK;
}

/* ---- freeing --------------------------------------------------------------------------------- */

void allocator_take_back(struct allocator *allocator, struct block *block) {
  if (memory_is_observed())
    observe_block(OPENREG_MEMORY_FREE_REQUESTED, block);
  stats_block_freed(allocator, block);
  if (openreg_stream_has_inline_ahead(allocator->device, block->shown.stream))
    block_add_stream(block, block->shown.stream); /* its own: see deferred.c */
  if (block_has_streams(block) && block_is_busy(block))
    deferred_push(allocator, block);
  else
    pool_free(allocator, block);
}

static void free_block(struct allocator *allocator, struct block *block) {
  if (__builtin_expect(block->is_abroad, 0)) {
    lent_free(allocator, block);
    return;
  }
  assert(block->state == BLOCK_ALLOCATED);
  if (block->shown.bytes == 0) {
    allocator->empty_blocks--;
    slab_put(&allocator->blocks, block);
    return;
  }
  __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
  allocator_take_back(allocator, block);
}

__attribute__((noinline)) static void free_locked(struct allocator *allocator,
                                                  struct block *block) {
  allocator_account(allocator);
  free_block(allocator, block);
  allocator_unlock(allocator);
}

void openreg_block_free(openreg_block *shown) {
  if (!shown)
    return;
  struct block *block = block_of(shown);
  struct allocator *allocator = allocator_of(block);
  if (!allocator) /* the memory is the parent's */
    return;
  lock_take(&allocator->lock);
  if (free_again(allocator, block))
    lock_give(&allocator->lock);
  else
    free_locked(allocator, block);
}

/* Without the lock: whoever asks for an allocated block learnt its address from its allocation. */
openreg_block *openreg_block_find(const void *address) {
  struct allocator *allocator = allocator_ready(openreg_arena_device_of(address));
  if (!allocator || (uintptr_t)address % UNIT_BYTES != 0)
    return NULL;
  if ((size_t)((const char *)address - allocator->base) >= allocator->capacity)
    return lent_find(allocator, address);
  struct block *block = __atomic_load_n(allocator_start(allocator, address), __ATOMIC_ACQUIRE);
  return block ? &block->shown : NULL;
}

/* ---- the cache ------------------------------------------------------------------------------- */

openreg_status openreg_cache_empty(int device) {
  struct allocator *allocator;
  openreg_status status = allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  status = allocator_empty(allocator, NULL);
  allocator_unlock(allocator);
  return status;
}

openreg_status openreg_memory_set_fraction(int device, double fraction) {
  struct allocator *allocator;
  openreg_status status = allocator_open(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!(fraction >= 0 && fraction <= 1))
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_memory_set_fraction: fraction %g: expected 0 to 1", fraction);
  allocator_lock(allocator);
  allocator->fraction = fraction;
  allocator->allowed_bytes = (size_t)(fraction * (double)allocator->capacity);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

openreg_status openreg_memory_get_fraction(int device, double *fraction) {
  struct allocator *allocator;
  openreg_status status = allocator_peek(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!fraction)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_get_fraction: fraction is NULL");
  *fraction = 1;
  if (allocator) {
    allocator_lock(allocator);
    *fraction = allocator->fraction;
    allocator_unlock(allocator);
  }
  return OPENREG_OK;
}
