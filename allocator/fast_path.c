/* fast_path.c: the first pair of a row, and the statistics of those that were only counted. */
#include "allocator/fast_path.h"
#include "allocator/stats.h"

void openreg_fast_path_run_first_pair(struct allocator *allocator) {
  struct last_allocation *last = &allocator->last_allocation;
  struct block *block = last->block;
  struct request request = {.bytes = block->base.requested_bytes,
                            .mempool = pool_mempool(block->pool),
                            .stream = block->base.stream};
  last->before = allocator->stats;
  bool complete = openreg_request_complete(allocator, &request);
  openreg_block_count_freed(allocator, block);
  openreg_block_mark_free(allocator, block);
  struct block *same = openreg_pool_take(allocator, &request);
  assert(complete && same == block);
  (void)complete;
  openreg_block_mark_allocated(allocator, same, &request);
  last->after = allocator->stats;
}

void openreg_allocator_flush_fast_path(struct allocator *allocator) {
  struct last_allocation *last = &allocator->last_allocation;
  if (last->pairs > 1)
    openreg_stats_repeat(&allocator->stats, &last->before, &last->after, last->pairs - 1);
  if (last->is_free) {
    openreg_block_count_freed(allocator, last->block);
    openreg_block_mark_free(allocator, last->block);
    last->is_free = false;
  }
}
