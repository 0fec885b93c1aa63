/* allocator.c: the functions that allocate and free, the lock, and the devices' allocators.
 *
 * Each device has one allocator and one lock, made on first use and kept for the life of the
 * process. Allocators share nothing, so that devices never wait for each other. Locks are not held
 * while waiting for a stream. The ledger's lock is taken under an allocator's, never the other way
 * round. A process forked after initialization has no devices: each function looks at that before
 * it would lock, since the lock may have been held by a thread that does not exist there.
 */
#include "internal.h"

#include <stdatomic.h>

static _Atomic(struct allocator *) allocators[OPENREG_MAX_DEVICES];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- the allocator of a device --------------------------------------------------------------- */

void allocator_lock(struct allocator *allocator) {
  int error = pthread_mutex_lock(&allocator->lock);
  assert(error == 0);
  (void)error;
}

void allocator_unlock(struct allocator *allocator) {
  int error = pthread_mutex_unlock(&allocator->lock);
  assert(error == 0);
  (void)error;
}

static struct allocator *allocator_make(int device, char *base, size_t bytes) {
  size_t starts_bytes = bytes / UNIT_BYTES * sizeof(struct block *);
  struct allocator *allocator = pages_map(sizeof *allocator + starts_bytes);
  if (!allocator)
    return NULL;
  pthread_mutex_init(&allocator->lock, NULL);
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

openreg_status allocator_peek(int device, struct allocator **allocator) {
  *allocator = NULL;
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK, "openreg: devices cannot be used in a process forked "
                                          "after they were initialized: start it with spawn");
  if (device >= 0 && device < OPENREG_MAX_DEVICES)
    *allocator = atomic_load_explicit(&allocators[device], memory_order_acquire);
  if (*allocator)
    return OPENREG_OK;
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

/* Makes a block that is in no free list the program's. */
static void hand_out(struct allocator *allocator, struct block *block, int stream, size_t bytes) {
  block->shown.requested_bytes = bytes;
  block->shown.user = NULL;
  block->shown.device = allocator->device;
  block->shown.stream = stream;
  block->state = BLOCK_ALLOCATED;
}

static openreg_status allocate_nothing(struct allocator *allocator, int stream,
                                       struct block **block) {
  if (!slab_ensure(&allocator->blocks, 1))
    return OPENREG_SYSTEM;
  *block = slab_take(&allocator->blocks);
  (*block)->shown.address = NULL;
  (*block)->shown.bytes = 0;
  (*block)->pool = NULL;
  allocator->empty_blocks++;
  hand_out(allocator, *block, stream, 0);
  return OPENREG_OK;
}

static openreg_status allocate_once(struct allocator *allocator, int stream, size_t bytes,
                                    struct block **block) {
  if (bytes > allocator->capacity)
    return OPENREG_OUT_OF_MEMORY;
  size_t rounded = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
  struct pool *pool = pool_get(allocator, stream, rounded);
  /* A reservation needs a block and a range, a cut one more block. */
  if (!pool || !slab_ensure(&allocator->blocks, 2) || !slab_ensure(&allocator->ranges, 1))
    return OPENREG_SYSTEM;
  struct block *found = freelist_best(&pool->free, rounded);
  if (!found) {
    openreg_status status = segment_reserve(allocator, pool, rounded, &found);
    if (status != OPENREG_OK)
      return status;
  }
  pool_take(allocator, found, rounded);
  hand_out(allocator, found, stream, bytes);
  *allocator_start(allocator, found->shown.address) = found;
  stats_block_allocated(allocator, found);
  stats_settle(allocator, pool->kind);
  *block = found;
  return OPENREG_OK;
}

static openreg_status empty(struct allocator *allocator) {
  openreg_status status = deferred_wait(allocator);
  return status == OPENREG_OK ? segments_release(allocator) : status;
}

static openreg_status allocate(struct allocator *allocator, int stream, size_t bytes,
                               struct block **block) {
  if (allocator->deferred)
    deferred_poll(allocator);
  if (bytes == 0)
    return allocate_nothing(allocator, stream, block);
  openreg_status status = allocate_once(allocator, stream, bytes, block);
  if (__builtin_expect(status != OPENREG_OUT_OF_MEMORY, 1))
    return status;
  allocator->stats.alloc_retries++;
  status = empty(allocator);
  if (status != OPENREG_OK)
    return status;
  status = allocate_once(allocator, stream, bytes, block);
  if (status != OPENREG_OUT_OF_MEMORY)
    return status;
  allocator->stats.ooms++;
  return report_out_of_memory(allocator, bytes);
}

openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block) {
  struct allocator *allocator;
  openreg_status status = allocator_open(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!block)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_allocate: block is NULL");
  if (stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_allocate: stream %d: expected 0 to %d", stream,
                        OPENREG_STREAMS_PER_DEVICE - 1);
  struct block *result = NULL;
  allocator_lock(allocator);
  status = allocate(allocator, stream, bytes, &result);
  allocator_unlock(allocator);
  if (status == OPENREG_OK)
    *block = &result->shown;
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
  *allocator_start(allocator, block->shown.address) = NULL;
  stats_block_freed(allocator, block);
  if (block_is_busy(block))
    deferred_push(allocator, block);
  else
    pool_free(allocator, block);
}

void openreg_block_free(openreg_block *shown) {
  if (!shown || openreg_in_bad_fork())
    return;
  struct block *block = block_of(shown);
  struct allocator *allocator = allocator_of(block);
  allocator_lock(allocator);
  free_block(allocator, block);
  allocator_unlock(allocator);
}

openreg_block *openreg_block_find(const void *address) {
  int device = openreg_arena_device_of(address);
  struct allocator *allocator;
  if (device < 0 || allocator_peek(device, &allocator) != OPENREG_OK || !allocator)
    return NULL;
  if ((uintptr_t)address % UNIT_BYTES != 0)
    return NULL;
  allocator_lock(allocator);
  struct block *block = *allocator_start(allocator, address);
  allocator_unlock(allocator);
  return block ? &block->shown : NULL;
}

/* ---- the cache ------------------------------------------------------------------------------- */

openreg_status openreg_cache_empty(int device) {
  struct allocator *allocator;
  openreg_status status = allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  status = empty(allocator);
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
