/* split.c: splits blocks for requests, and merges freed blocks.
 *
 * A request gets the front of its block, and the rest stays free. If the rest is not split off, it
 * belongs to the block while that is allocated, and counts as allocated. A freed block merges with
 * the free blocks next to it; blocks of different segments never merge.
 *
 * inactive_split is CUDA's measure of fragmentation: free blocks that are only a part of their
 * segment, and so cannot be released. Blocks of expandable segments are excluded, because their
 * whole pages can be released.
 */
#include "allocator/stats.h"

struct block *openreg_block_cut(struct allocator *allocator, struct block *block, size_t bytes) {
  assert(bytes > 0 && bytes < block->base.bytes && bytes % UNIT_BYTES == 0);
  struct block *rest = block_take_record(allocator);
  rest->base = (openreg_block){.address = block_address(block) + bytes,
                               .bytes = block->base.bytes - bytes,
                               .device = block->base.device,
                               .stream = block->base.stream};
  rest->pool = block->pool;
  rest->segment = block->segment;
  rest->is_shared = false;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next)
    rest->next->prev = rest;
  block->next = rest;
  block->base.bytes = bytes;
  return rest;
}

int openreg_block_merge(struct allocator *allocator, struct block *block, enum block_state state) {
  struct block *below = block->prev, *above = block->next;
  int merged = 0;
  if (below && below->state == state) {
    block->base.address = below->base.address;
    block->base.bytes += below->base.bytes;
    block->prev = below->prev;
    if (block->prev)
      block->prev->next = block;
    else
      block->segment->first = block;
    if (state == BLOCK_FREE)
      pool_remove(below);
    block_put_record(allocator, below);
    merged++;
  }
  if (above && above->state == state) {
    block->base.bytes += above->base.bytes;
    block->next = above->next;
    if (block->next)
      block->next->prev = block;
    if (state == BLOCK_FREE)
      pool_remove(above);
    block_put_record(allocator, above);
    merged++;
  }
  return merged;
}

/* ---- allocating ------------------------------------------------------------------------------ */

/* Whether the rest of a block stays in the pool. */
static bool should_split(const struct allocator *allocator, const struct block *block,
                         const struct request *request) {
  size_t rest = block->base.bytes - request->rounded_bytes;
  if (request->is_exact)
    return rest > 0;
  if (block->pool->owner && block->pool->owner->is_unsplit)
    return false;
  if (block->pool->kind == OPENREG_POOL_SMALL || request->is_expandable)
    return rest >= UNIT_BYTES;
  return request->rounded_bytes < allocator->settings.max_split_bytes && rest > SMALL_BYTES;
}

static void split(struct allocator *allocator, struct block *block, size_t bytes) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  bool was_split = block_is_split(block);
  struct block *rest = openreg_block_cut(allocator, block, bytes);
  pool_insert(rest);
  if (block_is_expandable(block))
    return;
  if (was_split) {
    stats_decrease(stats->inactive_split_bytes, kind, bytes);
  } else {
    stats_increase(stats->inactive_split_bytes, kind, rest->base.bytes);
    stats_increase(stats->inactive_split, kind, 1);
  }
}

static void count_allocated(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  stats_increase(stats->allocation, kind, 1);
  stats_increase(stats->allocated_bytes, kind, block->base.bytes);
  stats_increase(stats->active, kind, 1);
  stats_increase(stats->active_bytes, kind, block->base.bytes);
  stats_increase(stats->requested_bytes, kind, block->base.requested_bytes);
  if (block->base.bytes >= allocator->settings.max_split_bytes)
    stat_increase(&stats->oversize_allocations, 1);
}

/* Takes the front of a free block, or all of it. */
static void split_if_worthwhile(struct allocator *allocator, struct block *block,
                                const struct request *request) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  if (should_split(allocator, block, request)) {
    split(allocator, block, request->rounded_bytes);
  } else if (block_is_split(block) && !block_is_expandable(block)) {
    stats_decrease(stats->inactive_split_bytes, kind, block->base.bytes);
    stats_decrease(stats->inactive_split, kind, 1);
  }
}

openreg_block *openreg_block_mark_allocated(struct allocator *allocator, struct block *block,
                                            const struct request *request) {
  if (!block_is_uncached(block))
    split_if_worthwhile(allocator, block, request);
  block->base.requested_bytes = request->bytes;
  block->base.user = NULL;
  block->base.user_flags = 0;
  block->state = BLOCK_ALLOCATED;
  block->stream_uses = NULL;
  __atomic_store_n(address_map_slot(allocator, block->base.address), block, __ATOMIC_RELEASE);
  if (!block_is_uncached(block))
    count_allocated(allocator, block);
  if (memory_debug_is_on())
    openreg_debug_on_allocate(allocator, block, request->stack);
  if (memory_is_observed() && !block_is_uncached(block))
    openreg_observe_block(OPENREG_MEMORY_ALLOCATED, block);
  return &block->base;
}

/* ---- freeing ----------------------------------------------------------------------------- */

void openreg_block_count_freed(struct allocator *allocator, struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  stats_decrease(stats->allocation, kind, 1);
  stats_decrease(stats->allocated_bytes, kind, block->base.bytes);
  if (block->base.bytes >= allocator->settings.max_split_bytes)
    stat_decrease(&stats->oversize_allocations, 1);
  if (memory_is_observed())
    openreg_observe_block(OPENREG_MEMORY_FREE_REQUESTED, block);
}

void openreg_block_mark_free(struct allocator *allocator, struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  if (memory_is_observed())
    openreg_observe_block(OPENREG_MEMORY_FREE_COMPLETED, block);
  if (memory_debug_is_on())
    openreg_debug_on_free(allocator, block);
  stats_decrease(stats->active, kind, 1);
  stats_decrease(stats->active_bytes, kind, block->base.bytes);
  stats_decrease(stats->requested_bytes, kind, block->base.requested_bytes);

  size_t bytes = block->base.bytes;
  int64_t pieces = -openreg_block_merge(allocator, block, BLOCK_FREE);
  int64_t piece_bytes = -(int64_t)(block->base.bytes - bytes);
  if (block_is_split(block)) {
    pieces++;
    piece_bytes += (int64_t)block->base.bytes;
  }
  block->base.requested_bytes = 0;
  pool_insert(block);
  if (block_is_expandable(block))
    return;
  stats_change(stats->inactive_split, kind, pieces);
  stats_change(stats->inactive_split_bytes, kind, piece_bytes);
}
