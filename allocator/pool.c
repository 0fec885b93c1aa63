/* pool.c: the pools of a device, the size of blocks, and the best-fit search.
 *
 * Memory pool 0 and each private pool have a small and a large pool. Sizes are rounded by CUDA's
 * rules: up to a multiple of 512 bytes, or, with roundup_power2_divisions, up to the next of that
 * many steps between two powers of two. The rounded size selects the pool.
 */
#include "allocator/internal.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

static int floor_log2(size_t value) {
  return 63 - __builtin_clzll(value);
}

/* The intervals go from 2^i MiB to below twice that. The first and the last one are open. */
static size_t divisions_of(const openreg_memory_settings *settings, size_t bytes) {
  int interval = floor_log2(bytes) - floor_log2(SMALL_BYTES);
  if (interval < 0)
    interval = 0;
  if (interval >= OPENREG_ROUNDUP_INTERVALS)
    interval = OPENREG_ROUNDUP_INTERVALS - 1;
  return settings->roundup_power2_divisions[interval];
}

size_t openreg_round_size(const openreg_memory_settings *settings, size_t bytes) {
  if (bytes < UNIT_BYTES)
    return UNIT_BYTES;
  size_t divisions = divisions_of(settings, bytes);
  if (divisions > 1 && bytes > UNIT_BYTES * divisions)
    return round_up(bytes, ((size_t)1 << floor_log2(bytes)) >> floor_log2(divisions));
  return round_up(bytes, UNIT_BYTES);
}

static size_t segment_bytes_for(const openreg_memory_settings *settings, size_t rounded_bytes) {
  if (rounded_bytes <= SMALL_BYTES)
    return SMALL_SEGMENT_BYTES;
  if (rounded_bytes < OWN_SEGMENT_BYTES)
    return settings->large_segment_bytes;
  return round_up(rounded_bytes, OWN_SEGMENT_STEP_BYTES);
}

/* ---- pools ----------------------------------------------------------------------------------- */

struct private_pool *openreg_private_pool_find(struct allocator *allocator, uint64_t mempool) {
  struct private_pool *pool = allocator->private_pools;
  while (pool && pool->mempool != mempool)
    pool = pool->next;
  return pool;
}

struct private_pool *openreg_private_pool_open(struct allocator *allocator, uint64_t mempool) {
  struct private_pool *found = openreg_private_pool_find(allocator, mempool);
  if (found)
    return found;
  struct private_pool *pool = allocator->spare_private_pools;
  if (pool)
    allocator->spare_private_pools = pool->next;
  else
    pool = openreg_pages_map(sizeof *pool);
  if (!pool)
    return NULL;
  *pool = (struct private_pool){.mempool = mempool};
  openreg_mempool_get_options(pool);
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++)
    pool->pools[kind] = (struct pool){.kind = kind, .owner = pool};
  struct private_pool **link = &allocator->private_pools;
  while (*link && mempool_hash((*link)->mempool) < mempool_hash(mempool))
    link = &(*link)->next;
  pool->next = *link;
  return *link = pool;
}

bool openreg_request_complete(struct allocator *allocator, struct request *request) {
  const openreg_memory_settings *settings = &allocator->settings;
  request->rounded_bytes = openreg_round_size(settings, request->bytes) + red_zone_bytes();
  request->segment_bytes = segment_bytes_for(settings, request->rounded_bytes);
  struct pool *pools = allocator->pools;
  if (request->mempool != 0) {
    struct private_pool *own = openreg_private_pool_open(allocator, request->mempool);
    if (!own)
      return false;
    pools = own->pools;
  }
  request->pool =
      &pools[request->rounded_bytes <= SMALL_BYTES ? OPENREG_POOL_SMALL : OPENREG_POOL_LARGE];
  const struct private_pool *owner = request->pool->owner;
  /* A custom allocator provides whole segments. */
  request->is_expandable = settings->expandable_segments && !(owner && owner->custom.allocate);
  return true;
}

/* ---- best fit -------------------------------------------------------------------------------- */

static struct block *next_of_stream(const struct request *request, const struct block *block) {
  struct block *next = openreg_tree_after(request->pool->free, block);
  return next && next->base.stream == request->stream ? next : NULL;
}

/* Returns the size that a free block would have if the addresses behind it were mapped. */
static size_t bytes_expanded(const struct block *block) {
  const struct block *next = block->next;
  return block->base.bytes + (next && next->state == BLOCK_UNMAPPED ? next->base.bytes : 0);
}

/* As on CUDA, an expandable block counts with the size to which it can grow. So a larger block that
 * cannot grow is preferred, and the smallest is chosen among the blocks that follow. */
static struct block *least_expanded(const struct request *request, struct block *block) {
  while (block_is_expandable(block)) {
    struct block *next = next_of_stream(request, block);
    if (!next || bytes_expanded(next) >= bytes_expanded(block))
      break;
    block = next;
  }
  return block;
}

static struct block *first_not_expandable(const struct request *request, struct block *block) {
  while (block && block_is_expandable(block))
    block = next_of_stream(request, block);
  return block;
}

struct block *openreg_pool_take(struct allocator *allocator, const struct request *request) {
  const openreg_memory_settings *settings = &allocator->settings;
  struct pool *pool = request->pool;
  if (allocator->allowed_bytes != SIZE_MAX && settings->garbage_collection_threshold > 0)
    pool->searches++;
  struct block *block = openreg_tree_at_least(pool->free, request->stream, request->rounded_bytes);
  if (!block || block->base.stream != request->stream)
    return NULL;
  block = request->is_expandable ? least_expanded(request, block)
                                 : first_not_expandable(request, block);
  if (!block)
    return NULL;
  bool is_oversize = block->base.bytes >= settings->max_split_bytes;
  if (request->rounded_bytes < settings->max_split_bytes) {
    if (is_oversize)
      return NULL;
  } else if (block->base.bytes >= request->rounded_bytes + settings->max_non_split_rounding_bytes) {
    return NULL;
  }
  pool_remove(block);
  return block;
}
