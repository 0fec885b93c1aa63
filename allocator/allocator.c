/* allocator.c: the functions that allocate and free, and the devices' allocators.
 *
 * Each device has one allocator and one lock, made on first use and kept for the life of the
 * process. Allocators share nothing, so that devices never wait for each other. Locks are not held
 * while waiting for a stream. The ledger's lock is taken under an allocator's, never the other way
 * round. A process forked after initialization has no devices: each function looks at that before
 * it would lock, since the lock may have been held by a thread that does not exist there.
 */
#include "internal.h"

#include <pthread.h>
#include <stdatomic.h>

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
  return allocator;
}

/* What most calls need: the device's allocator if it was used and can still be, else NULL. */
static struct allocator *allocator_ready(int device) {
  if (openreg_in_bad_fork() || device < 0 || device >= OPENREG_MAX_DEVICES)
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
  if (!*allocator) {
    *allocator = allocator_make(device, base, bytes);
    atomic_store_explicit(&allocators[device], *allocator, memory_order_release);
  }
  pthread_mutex_unlock(&making);
  return *allocator ? OPENREG_OK : OPENREG_SYSTEM;
}

struct allocator *allocator_of(const struct block *block) {
  return atomic_load_explicit(&allocators[block->shown.device], memory_order_acquire);
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

static openreg_status allocate_once(struct allocator *allocator, int stream, size_t bytes,
                                    openreg_block **result) {
  if (bytes > allocator->capacity)
    return OPENREG_OUT_OF_MEMORY;
  size_t rounded = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
  struct pool *pools = allocator->pools[stream];
  if (!pools)
    pools = pools_make(allocator, stream);
  /* A reservation needs a block and a range, a cut one more block. */
  if (!pools || !slab_ensure(&allocator->blocks, 2) || !slab_ensure(&allocator->ranges, 1))
    return OPENREG_SYSTEM;
  struct pool *pool = &pools[rounded > SMALL_BYTES];
  struct block *block = pool_take(allocator, pool, rounded);
  if (!block) {
    openreg_status status = segment_reserve(allocator, pool, rounded);
    if (status != OPENREG_OK)
      return status;
    block = pool_take(allocator, pool, rounded);
  }
  *result = hand_out(allocator, block, stream, bytes);
  __atomic_store_n(allocator_start(allocator, block->shown.address), block, __ATOMIC_RELEASE);
  stats_block_allocated(allocator, block);
  stats_settle_splits(allocator, pool->kind);
  return OPENREG_OK;
}

static openreg_status empty(struct allocator *allocator) {
  openreg_status status = deferred_wait(allocator);
  return status == OPENREG_OK ? segments_release(allocator) : status;
}

static openreg_status allocate_after_emptying(struct allocator *allocator, int stream, size_t bytes,
                                              openreg_block **result) {
  allocator->stats.alloc_retries++;
  openreg_status status = empty(allocator);
  if (status != OPENREG_OK)
    return status;
  status = allocate_once(allocator, stream, bytes, result);
  if (status != OPENREG_OUT_OF_MEMORY)
    return status;
  allocator->stats.ooms++;
  return report_out_of_memory(allocator, bytes);
}

static openreg_status allocate(struct allocator *allocator, int stream, size_t bytes,
                               openreg_block **result) {
  if (allocator->deferred)
    deferred_poll(allocator);
  if (bytes == 0)
    return allocate_nothing(allocator, stream, result);
  openreg_status status = allocate_once(allocator, stream, bytes, result);
  if (__builtin_expect(status != OPENREG_OUT_OF_MEMORY, 1))
    return status;
  return allocate_after_emptying(allocator, stream, bytes, result);
}

static openreg_status refuse(openreg_block **block, int stream) {
  if (!block)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_allocate: block is NULL");
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg_block_allocate: stream %d: expected 0 to %d", stream,
                      OPENREG_STREAMS_PER_DEVICE - 1);
}

openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block) {
  struct allocator *allocator = allocator_ready(device);
  if (!allocator) {
    openreg_status status = allocator_open(device, &allocator);
    if (status != OPENREG_OK)
      return status;
  }
  if (!block || stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return refuse(block, stream);
  lock_take(&allocator->lock);
  openreg_status status = allocate(allocator, stream, bytes, block);
  lock_give(&allocator->lock);
  return status;
}

/* ---- freeing --------------------------------------------------------------------------------- */

static void free_block(struct allocator *allocator, struct block *block) {
  assert(block->state == BLOCK_ALLOCATED);
  if (block->shown.bytes == 0) {
    allocator->empty_blocks--;
    slab_put(&allocator->blocks, block);
    return;
  }
  __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
  stats_block_freed(allocator, block);
  if (openreg_stream_has_inline_ahead(allocator->device, block->shown.stream))
    block_add_stream(block, block->shown.stream); /* its own: see deferred.c */
  if (block_has_streams(block) && block_is_busy(block))
    deferred_push(allocator, block);
  else
    pool_free(allocator, block);
}

void openreg_block_free(openreg_block *shown) {
  if (!shown || openreg_in_bad_fork())
    return;
  struct block *block = block_of(shown);
  struct allocator *allocator = allocator_of(block);
  lock_take(&allocator->lock);
  free_block(allocator, block);
  lock_give(&allocator->lock);
}

/* Without the lock: whoever asks for an allocated block learnt its address from its allocation. */
openreg_block *openreg_block_find(const void *address) {
  struct allocator *allocator = allocator_ready(openreg_arena_device_of(address));
  if (!allocator || (uintptr_t)address % UNIT_BYTES != 0)
    return NULL;
  struct block *block = __atomic_load_n(allocator_start(allocator, address), __ATOMIC_ACQUIRE);
  return block ? &block->shown : NULL;
}

/* ---- the cache ------------------------------------------------------------------------------- */

openreg_status openreg_cache_empty(int device) {
  struct allocator *allocator;
  openreg_status status = allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  lock_take(&allocator->lock);
  status = empty(allocator);
  lock_give(&allocator->lock);
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
  lock_take(&allocator->lock);
  allocator->fraction = fraction;
  allocator->allowed_bytes = (size_t)(fraction * (double)allocator->capacity);
  lock_give(&allocator->lock);
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
    lock_take(&allocator->lock);
    *fraction = allocator->fraction;
    lock_give(&allocator->lock);
  }
  return OPENREG_OK;
}
