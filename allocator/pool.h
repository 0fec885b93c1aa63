/* pool.h: the functions of pools that every allocation and every free calls, inlined. What they do
 * is told in pool.c. */
#ifndef OPENREG_ALLOCATOR_POOL_H
#define OPENREG_ALLOCATOR_POOL_H

#include "allocator/freelist.h"
#include "allocator/stats.h"

#pragma GCC visibility push(hidden)

/* ---- counting -------------------------------------------------------------------------------- */

/* What free bytes between two blocks that are not free count as. */
struct splits openreg_splits_of(const char *from, const char *to);

static inline struct splits splits_less(struct splits from, struct splits splits) {
  return (struct splits){from.pieces - splits.pieces, from.bytes - splits.bytes};
}

static inline struct splits splits_of_block(const struct block *block) {
  return openreg_splits_of(block_address(block), block_end(block));
}

/* What changes when a block joins its free neighbours. Less than a granule holds no whole one. */
static inline struct splits splits_of_joining(const struct block *block) {
  const struct block *below = block->prev, *above = block->next;
  const bool joins_below = below->state == BLOCK_FREE, joins_above = above->state == BLOCK_FREE;
  const char *from = joins_below ? block_address(below) : block_address(block);
  const char *to = joins_above ? block_end(above) : block_end(block);
  if (to - from < GRANULE_BYTES)
    return (struct splits){1 - joins_below - joins_above, (int64_t)block->shown.bytes};
  struct splits change = openreg_splits_of(from, to);
  if (joins_below)
    change = splits_less(change, splits_of_block(below));
  if (joins_above)
    change = splits_less(change, splits_of_block(above));
  return change;
}

/* What changes when the first `bytes` of a free block are not free any more. */
static inline struct splits splits_of_taking(const struct block *block, size_t bytes) {
  if (block->shown.bytes < GRANULE_BYTES)
    return (struct splits){-(block->shown.bytes == bytes), -(int64_t)bytes};
  return splits_less(openreg_splits_of(block_address(block) + bytes, block_end(block)),
                     splits_of_block(block));
}

/* ---- cutting and putting together ------------------------------------------------------------ */

static inline struct block *block_cut_inline(struct allocator *allocator, struct block *block,
                                             size_t bytes) {
  assert(bytes > 0 && bytes < block->shown.bytes && bytes % UNIT_BYTES == 0);
  struct block *rest = slab_take(&allocator->blocks), *above = block->next;
  rest->shown.address = block_address(block) + bytes;
  rest->shown.bytes = block->shown.bytes - bytes;
  rest->pool = block->pool;
  rest->prev = block;
  rest->next = above;
  above->prev = rest;
  block->next = rest;
  block->shown.bytes = bytes;
  return rest;
}

/* Takes the free block above into `block`. */
static inline void merge_above(struct allocator *allocator, struct block *block,
                               struct block *above) {
  assert(block_end(block) == block_address(above) && block->pool == above->pool);
  block->shown.bytes += above->shown.bytes;
  block->next = above->next;
  above->next->prev = block;
  slab_put(&allocator->blocks, above);
}

/* Takes `bytes` of the smallest free block that has them, or all of it if it must not be split; the
 * rest stays free. NULL when there is none. Sets what the free memory's figures change by. Uses one
 * record. */
static inline struct block *pool_take(struct allocator *allocator, struct pool *pool, size_t bytes,
                                      struct splits *change) {
  struct block *block = freelist_take(&pool->free, bytes);
  if (!block)
    return NULL;
  if (__builtin_expect(pool->is_unsplit, 0))
    bytes = block->shown.bytes;
  *change = splits_of_taking(block, bytes);
  if (block->shown.bytes > bytes) {
    struct block *rest = block_cut_inline(allocator, block, bytes);
    rest->state = BLOCK_FREE;
    freelist_insert(&pool->free, rest);
  }
  return block;
}

/* Makes a block of its segment free, and one with its free neighbours. Gives what the free memory's
 * figures change by. */
static inline struct splits pool_put(struct allocator *allocator, struct block *block) {
  struct freelist *list = &block->pool->free;
  struct block *below = block->prev, *above = block->next;
  const struct splits change = splits_of_joining(block);
  if (above->state == BLOCK_FREE) {
    freelist_remove(list, above);
    merge_above(allocator, block, above);
  }
  if (below->state == BLOCK_FREE) {
    freelist_remove(list, below);
    merge_above(allocator, below, block);
    block = below;
  }
  block->state = BLOCK_FREE;
  freelist_insert(list, block);
  return change;
}

static inline void pool_put_counted(struct allocator *allocator, struct block *block) {
  struct tally *tally = block->pool->tally;
  stats_splits_changed(allocator, tally, pool_put(allocator, block));
}

#pragma GCC visibility pop
#endif
