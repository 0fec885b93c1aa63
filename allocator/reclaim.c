/* reclaim.c: which cached memory is released, when, and in which order.
 *
 * As with cudaFree, memory is released when no work of the device can use it any more. If that
 * requires waiting, a step stops without further changes and returns NOT_READY. Then the lock is
 * released, because the work may need it, the device is drained, and the step runs again.
 */
#include "allocator/internal.h"

enum { MAX_IDLE_WAITS = 64 }; /* more than that only if other threads submit work all the time */

typedef openreg_status release_step(struct allocator *allocator, const void *argument);

/* Returns NOT_READY if the device did not become idle. */
static openreg_status run_when_idle(struct allocator *allocator, release_step *step,
                                    const void *argument) {
  openreg_status status = step(allocator, argument);
  for (int round = 0; status == OPENREG_NOT_READY && round < MAX_IDLE_WAITS; round++) {
    status = openreg_allocator_wait_idle(allocator);
    if (status == OPENREG_OK)
      status = step(allocator, argument);
  }
  if (allocator->segments_to_return)
    openreg_custom_allocator_release(allocator);
  return status;
}

/* ---- iterating over free blocks -------------------------------------------------------------- */

static struct block *first_free(const struct pool *pool) {
  return openreg_tree_at_least(pool->free, 0, 0);
}

/* Whether a free block covers its segment, and the segment is not expandable. */
static bool is_whole_segment(const struct block *block) {
  return !block_is_split(block) && !block_is_expandable(block);
}

/* Releases the free blocks of a pool that cover their segment, and then the pages of expandable
 * segments. The parts that remain of those are smaller, so they come earlier in the order. */
static openreg_status release_blocks(struct allocator *allocator, struct pool *pool) {
  openreg_status status = OPENREG_OK;
  struct block *block = first_free(pool), *next;
  for (; block && status == OPENREG_OK; block = next) {
    next = openreg_tree_after(pool->free, block);
    if (is_whole_segment(block))
      status = openreg_segment_release(allocator, block);
  }
  if (status != OPENREG_OK)
    return status;
  for (block = first_free(pool); block && status == OPENREG_OK; block = next) {
    next = openreg_tree_after(pool->free, block);
    if (block_is_expandable(block))
      status = openreg_expandable_unmap(allocator, block);
  }
  return status;
}

/* ---- garbage --------------------------------------------------------------------------------- */

struct garbage {
  uint64_t age, blocks; /* of the large pool's free blocks that cover their segment */
};

static uint64_t free_age(const struct block *block) {
  return block->pool->searches - block->searches;
}

static struct garbage measure_garbage(const struct pool *pool) {
  struct garbage garbage = {0};
  for (struct block *block = first_free(pool); block; block = openreg_tree_after(pool->free, block))
    if (is_whole_segment(block)) {
      garbage.age += free_age(block);
      garbage.blocks++;
    }
  return garbage;
}

/* Releases the blocks that have at least average age. */
static openreg_status release_old(struct allocator *allocator, struct garbage *garbage,
                                  size_t *released) {
  struct pool *pool = &allocator->pools[OPENREG_POOL_LARGE];
  const double threshold = (double)garbage->age / (double)garbage->blocks;
  openreg_status status = OPENREG_OK;
  for (struct block *block = first_free(pool), *next; block && status == OPENREG_OK; block = next) {
    next = openreg_tree_after(pool->free, block);
    uint64_t age = free_age(block);
    size_t bytes = block->base.bytes;
    if (!is_whole_segment(block) || (double)age < threshold)
      continue;
    status = openreg_segment_release(allocator, block);
    if (status == OPENREG_OK) {
      *released += bytes;
      garbage->age -= age;
      garbage->blocks--;
    }
  }
  return status;
}

static openreg_status collect_garbage(struct allocator *allocator, const void *nothing) {
  (void)nothing;
  const double part = allocator->settings.garbage_collection_threshold;
  if (allocator->allowed_bytes == SIZE_MAX || part <= 0)
    return OPENREG_OK;
  const size_t threshold = (size_t)(part * (double)allocator->allowed_bytes);
  const size_t reserved = (size_t)allocator->stats.reserved_bytes[OPENREG_POOL_ALL].current;
  if (reserved <= threshold)
    return OPENREG_OK;
  struct garbage garbage = measure_garbage(&allocator->pools[OPENREG_POOL_LARGE]);
  size_t released = 0, before = SIZE_MAX;
  openreg_status status = OPENREG_OK;
  while (status == OPENREG_OK && released < reserved - threshold && released != before &&
         garbage.blocks > 0) {
    before = released;
    status = release_old(allocator, &garbage, &released);
  }
  return status;
}

openreg_status openreg_collect_garbage(struct allocator *allocator) {
  openreg_status status = run_when_idle(allocator, collect_garbage, NULL);
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

/* ---- oversize blocks ------------------------------------------------------------------------- */

/* Releases blocks from the stream's largest one downwards, until `wanted` bytes are reached. */
static openreg_status release_largest(struct allocator *allocator, const struct request *request,
                                      size_t wanted) {
  struct pool *pool = request->pool;
  size_t released = 0;
  struct block *block = openreg_tree_below(pool->free, request->stream, wanted), *next;
  for (; block && released < wanted && block->base.stream == request->stream &&
         block->base.bytes >= allocator->settings.max_split_bytes;
       block = next) {
    size_t bytes = block->base.bytes;
    next = openreg_tree_before(pool->free, block);
    if (!is_whole_segment(block))
      continue;
    openreg_status status = openreg_segment_release(allocator, block);
    if (status != OPENREG_OK)
      return status;
    released += bytes;
  }
  return released < wanted ? OPENREG_OUT_OF_MEMORY : OPENREG_OK;
}

static openreg_status release_oversize(struct allocator *allocator, const void *argument) {
  const struct request *request = argument;
  const size_t most = allocator->settings.max_split_bytes;
  if (most == SIZE_MAX)
    return OPENREG_OUT_OF_MEMORY;
  size_t wanted = request->rounded_bytes < most ? most : request->rounded_bytes;
  struct block *block = openreg_tree_at_least(request->pool->free, request->stream, wanted);
  if (block && block->base.stream == request->stream && is_whole_segment(block))
    return openreg_segment_release(allocator, block);
  return release_largest(allocator, request, wanted);
}

openreg_status openreg_release_oversize(struct allocator *allocator,
                                        const struct request *request) {
  openreg_status status = run_when_idle(allocator, release_oversize, request);
  return status == OPENREG_NOT_READY ? OPENREG_OUT_OF_MEMORY : status;
}

/* ---- emptying the cache ---------------------------------------------------------------------- */

/* Releases the free memory of private pools that are not kept, and removes the pools that have no
 * segment left. */
static openreg_status release_private(struct allocator *allocator, const uint64_t *only) {
  struct private_pool **link = &allocator->private_pools;
  while (*link) {
    struct private_pool *pool = *link;
    if (openreg_mempool_is_kept(pool->mempool) || (only && pool->mempool != *only)) {
      link = &pool->next;
      continue;
    }
    openreg_status status = release_blocks(allocator, &pool->pools[OPENREG_POOL_SMALL]);
    if (status == OPENREG_OK)
      status = release_blocks(allocator, &pool->pools[OPENREG_POOL_LARGE]);
    if (status != OPENREG_OK)
      return status;
    if (pool->segments > 0) {
      link = &pool->next;
      continue;
    }
    *link = pool->next;
    pool->next = allocator->spare_private_pools;
    allocator->spare_private_pools = pool;
  }
  return OPENREG_OK;
}

/* Releases all cached blocks. If `only` is not NULL: those of that memory pool. */
static openreg_status release_cached(struct allocator *allocator, const void *only) {
  openreg_shared_poll(allocator);
  if (!only) {
    openreg_status status = release_blocks(allocator, &allocator->pools[OPENREG_POOL_LARGE]);
    if (status == OPENREG_OK)
      status = release_blocks(allocator, &allocator->pools[OPENREG_POOL_SMALL]);
    if (status != OPENREG_OK)
      return status;
  }
  return release_private(allocator, only);
}

openreg_status openreg_allocator_empty(struct allocator *allocator, const uint64_t *only) {
  openreg_shared_poll(allocator);
  openreg_status status = openreg_events_synchronize(allocator, only);
  if (status == OPENREG_OK)
    status = run_when_idle(allocator, release_cached, only);
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_cache_empty(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  status = openreg_allocator_empty(allocator, NULL);
  allocator_unlock(allocator);
  return status;
}
