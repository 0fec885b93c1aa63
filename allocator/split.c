/* split.c: cutting requests off blocks, and making freed blocks whole again.
 *
 * A request gets the front of its block, the rest stays free. What is not cut off belongs to the
 * block as long as it is the program's, and counts as allocated. A freed block takes in the free
 * blocks that touch it; a segment's blocks never touch another's.
 *
 * inactive_split is CUDA's measure of fragmentation: the free blocks that are not all of their
 * segment, which therefore cannot be given back. Those of expandable segments are left out, since
 * all of their whole pages can be.
 */
#include "allocator/stats.h"

struct block *openreg_block_cut(struct allocator *allocator, struct block *block, size_t bytes) {
  assert(bytes > 0 && bytes < block->shown.bytes && bytes % UNIT_BYTES == 0);
  struct block *rest = block_take_record(allocator);
  rest->shown = (openreg_block){.address = block_address(block) + bytes,
                                .bytes = block->shown.bytes - bytes,
                                .device = block->shown.device,
                                .stream = block->shown.stream};
  rest->pool = block->pool;
  rest->segment = block->segment;
  rest->is_shared = false;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next)
    rest->next->prev = rest;
  block->next = rest;
  block->shown.bytes = bytes;
  return rest;
}

int openreg_block_merge(struct allocator *allocator, struct block *block, enum block_state state) {
  struct block *below = block->prev, *above = block->next;
  int merged = 0;
  if (below && below->state == state) {
    block->shown.address = below->shown.address;
    block->shown.bytes += below->shown.bytes;
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
    block->shown.bytes += above->shown.bytes;
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

/* ---- handing out ----------------------------------------------------------------------------- */

/* Whether what is left of a block stays in the pool. */
static bool should_split(const struct allocator *allocator, const struct block *block,
                         const struct request *request) {
  size_t rest = block->shown.bytes - request->rounded_bytes;
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
    stats_increase(stats->inactive_split_bytes, kind, rest->shown.bytes);
    stats_increase(stats->inactive_split, kind, 1);
  }
}

static void count_handed_out(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  stats_increase(stats->allocation, kind, 1);
  stats_increase(stats->allocated_bytes, kind, block->shown.bytes);
  stats_increase(stats->active, kind, 1);
  stats_increase(stats->active_bytes, kind, block->shown.bytes);
  stats_increase(stats->requested_bytes, kind, block->shown.requested_bytes);
  if (block->shown.bytes >= allocator->settings.max_split_bytes)
    stat_increase(&stats->oversize_allocations, 1);
}

/* Takes the front of a free block, or all of it. */
static void take_from_free(struct allocator *allocator, struct block *block,
                           const struct request *request) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  if (should_split(allocator, block, request)) {
    split(allocator, block, request->rounded_bytes);
  } else if (block_is_split(block) && !block_is_expandable(block)) {
    stats_decrease(stats->inactive_split_bytes, kind, block->shown.bytes);
    stats_decrease(stats->inactive_split, kind, 1);
  }
}

openreg_block *openreg_block_hand_out(struct allocator *allocator, struct block *block,
                                      const struct request *request) {
  if (!block_is_uncached(block))
    take_from_free(allocator, block, request);
  block->shown.requested_bytes = request->bytes;
  block->shown.user = NULL;
  block->state = BLOCK_ALLOCATED;
  block->uses = NULL;
  __atomic_store_n(allocator_start(allocator, block->shown.address), block, __ATOMIC_RELEASE);
  if (!block_is_uncached(block))
    count_handed_out(allocator, block);
  if (memory_is_debugged())
    openreg_debug_handed_out(allocator, block, request->stack);
  if (memory_is_observed() && !block_is_uncached(block))
    openreg_observe_block(OPENREG_MEMORY_ALLOCATED, block);
  return &block->shown;
}

/* ---- making free ----------------------------------------------------------------------------- */

void openreg_block_make_free(struct allocator *allocator, struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  if (memory_is_observed())
    openreg_observe_block(OPENREG_MEMORY_FREE_COMPLETED, block);
  if (memory_is_debugged())
    openreg_debug_freed(allocator, block);
  stats_decrease(stats->active, kind, 1);
  stats_decrease(stats->active_bytes, kind, block->shown.bytes);
  stats_decrease(stats->requested_bytes, kind, block->shown.requested_bytes);

  size_t bytes = block->shown.bytes;
  int64_t pieces = -openreg_block_merge(allocator, block, BLOCK_FREE);
  int64_t piece_bytes = -(int64_t)(block->shown.bytes - bytes);
  if (block_is_split(block)) {
    pieces++;
    piece_bytes += (int64_t)block->shown.bytes;
  }
  block->shown.requested_bytes = 0;
  pool_insert(block);
  if (block_is_expandable(block))
    return;
  stats_change(stats->inactive_split, kind, pieces);
  stats_change(stats->inactive_split_bytes, kind, piece_bytes);
}
