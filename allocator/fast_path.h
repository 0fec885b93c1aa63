/* fast_path.h: the fast path of programs that allocate, free and allocate the same size again.
 *
 * Programs do this with every temporary tensor. Freeing the block that was allocated last restores
 * the state before the allocation, and allocating the same size again restores the state after it.
 * So while a program alternates between the two, only the first pair goes through the pools. Each
 * later call only changes `is_free` and counts a pair. Any other operation first calls
 * allocator_flush_fast_path, which adds the counted pairs to the statistics, and frees the block if
 * the program has freed it. Nobody can observe the difference.
 *
 * An allocated block is never touched: its holder reads and writes it without a lock.
 *
 * A pair takes about 5 ns here and 30 ns through the pools; malloc and free take 5 ns. The goal of
 * bench/memory.py (at most 1.5 times malloc) depends on it.
 */
#ifndef OPENREG_ALLOCATOR_FAST_PATH_H
#define OPENREG_ALLOCATOR_FAST_PATH_H

#include "allocator/internal.h"

#pragma GCC visibility push(hidden)

/* Frees and allocates the last block, which the program has freed, through the pools. */
void openreg_fast_path_run_first_pair(struct allocator *allocator);

/* Frees the block that was allocated last. Returns false, and changes nothing, for any other block,
 * and for one that must wait for a stream or another process. */
static inline bool free_fast_path(struct allocator *allocator, struct block *block) {
  struct last_allocation *last = &allocator->last_allocation;
  if (last->block != block || block->stream_uses || block->is_shared ||
      openreg_stream_has_pending_inline(block->base.device, block->base.stream))
    return false;
  assert(!last->is_free && block->state == BLOCK_ALLOCATED);
  last->is_free = true;
  block->state = BLOCK_PARKED;
  __atomic_store_n(address_map_slot(allocator, block->base.address), NULL, __ATOMIC_RELAXED);
  return true;
}

/* Allocates the block that was freed last, if the request equals the one that it served. Otherwise
 * returns NULL and changes nothing. */
static inline openreg_block *allocate_fast_path(struct allocator *allocator, int stream,
                                                size_t bytes, uint64_t mempool) {
  struct last_allocation *last = &allocator->last_allocation;
  struct block *block = last->block;
  if (!last->is_free || block->base.requested_bytes != bytes || block->base.stream != stream ||
      pool_mempool(block->pool) != mempool || allocator->event_count || allocator->awaiting_idle)
    return NULL;
  last->is_free = false;
  if (last->pairs++ == 0)
    openreg_fast_path_run_first_pair(allocator);
  block->base.user = NULL;
  block->base.user_flags = 0;
  block->state = BLOCK_ALLOCATED;
  __atomic_store_n(address_map_slot(allocator, block->base.address), block, __ATOMIC_RELEASE);
  return &block->base;
}

/* Offers a block that was just allocated from the cache to the fast path. Observers, the memory
 * debugger and garbage collection, which counts searches, need to see each operation. */
static inline void fast_path_offer(struct allocator *allocator, struct block *block) {
  if (!memory_is_observed() && !memory_debug_is_on() &&
      (allocator->allowed_bytes == SIZE_MAX ||
       allocator->settings.garbage_collection_threshold == 0))
    allocator->last_allocation.block = block;
}

#pragma GCC visibility pop
#endif
