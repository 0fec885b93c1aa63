/* fast_path.c: applies the operations that the fast path only counted. */
#include "allocator/fast_path.h"
#include "allocator/stats.h"

/* Frees and allocates the block once through the pools, and counts what that changed `pairs`
 * times. */
static void apply_pairs(struct allocator *allocator, struct block *block, int64_t pairs) {
  const openreg_block base = block->base;
  const openreg_memory_stats before = allocator->stats;
  struct request request = {
      .bytes = base.requested_bytes, .mempool = pool_mempool(block->pool), .stream = base.stream};
  bool complete = openreg_request_complete(allocator, &request);
  openreg_block_count_freed(allocator, block);
  openreg_block_mark_free(allocator, block);
  struct block *same = openreg_pool_take(allocator, &request);
  assert(complete && same == block && block->base.address == base.address);
  (void)complete;
  openreg_block_mark_allocated(allocator, same, &request);
  block->base.user = base.user;
  block->base.user_flags = base.user_flags;
  const openreg_memory_stats after = allocator->stats;
  openreg_stats_repeat(&allocator->stats, &before, &after, pairs - 1);
}

void openreg_allocator_flush_fast_path(struct allocator *allocator) {
  const struct last_allocation last = allocator->last_allocation;
  allocator->last_allocation = (struct last_allocation){0};
  if (last.pairs)
    apply_pairs(allocator, last.block, last.pairs);
  if (last.is_free) {
    __atomic_store_n(address_map_slot(allocator, last.block->base.address), NULL, __ATOMIC_RELAXED);
    openreg_block_count_freed(allocator, last.block);
    openreg_block_mark_free(allocator, last.block);
  }
}
