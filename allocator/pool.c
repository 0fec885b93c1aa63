/* pool.c: cutting blocks off free ones, and making freed ones whole again.
 *
 * A request is always cut to its rounded size, whatever is left over. CUDA leaves up to 1 MiB of a
 * large block uncut, because there a remainder can only be joined again inside its own segment;
 * here the neighbours of a remainder are those of the arena, and in return the bytes allocated are
 * exactly the sum of the requests rounded up.
 *
 * A free block counts as split as far as emptying the cache could not give it back: the ends that
 * share a granule with a block in use. So reserved == active + inactive split + what emptying
 * returns, as with CUDA, where a segment of the small pool is one granule.
 */
#include "internal.h"

struct pool *pool_get(struct allocator *allocator, int stream, size_t bytes) {
  struct pool *pools = allocator->pools[stream];
  if (__builtin_expect(!pools, 0)) {
    pools = pages_map(2 * sizeof *pools);
    if (!pools)
      return NULL;
    pools[0] = (struct pool){.stream = stream, .kind = OPENREG_POOL_SMALL};
    pools[1] = (struct pool){.stream = stream, .kind = OPENREG_POOL_LARGE};
    allocator->pools[stream] = pools;
  }
  return &pools[bytes > SMALL_BYTES];
}

struct span block_whole_granules(const struct block *block) {
  const uintptr_t mask = ~(uintptr_t)(GRANULE_BYTES - 1);
  uintptr_t from = ((uintptr_t)block_address(block) + GRANULE_BYTES - 1) & mask;
  uintptr_t to = (uintptr_t)block_end(block) & mask;
  return (struct span){(char *)from, (char *)(to > from ? to : from)};
}

static void count_inactive(struct allocator *allocator, const struct block *block, int sign) {
  struct holding *holding = &allocator->holding[block->pool->kind];
  struct span whole = block_whole_granules(block);
  int pieces = 1;
  int64_t bytes = (int64_t)block->shown.bytes;
  if (whole.from < whole.to) {
    pieces = (block_address(block) < whole.from) + (whole.to < block_end(block));
    bytes -= whole.to - whole.from;
  }
  holding->inactive_splits += sign * pieces;
  holding->inactive_split_bytes += sign * bytes;
}

void pool_insert(struct allocator *allocator, struct block *block) {
  block->state = BLOCK_FREE;
  freelist_insert(&block->pool->free, block);
  count_inactive(allocator, block, 1);
}

void pool_remove(struct allocator *allocator, struct block *block) {
  assert(block->state == BLOCK_FREE);
  count_inactive(allocator, block, -1);
  freelist_remove(&block->pool->free, block);
}

struct block *block_cut(struct allocator *allocator, struct block *block, size_t bytes) {
  assert(bytes > 0 && bytes < block->shown.bytes && bytes % UNIT_BYTES == 0);
  struct block *rest = slab_take(&allocator->blocks);
  rest->shown.address = block_address(block) + bytes;
  rest->shown.bytes = block->shown.bytes - bytes;
  rest->pool = block->pool;
  rest->prev = block;
  rest->next = block->next;
  block->next->prev = rest;
  block->next = rest;
  block->shown.bytes = bytes;
  return rest;
}

void pool_take(struct allocator *allocator, struct block *block, size_t bytes) {
  assert(block->shown.bytes >= bytes);
  pool_remove(allocator, block);
  if (block->shown.bytes == bytes)
    return;
  pool_insert(allocator, block_cut(allocator, block, bytes));
}

/* Makes `block` and the one above it one. */
static void merge_above(struct allocator *allocator, struct block *block) {
  struct block *above = block->next;
  assert(block_end(block) == block_address(above) && block->pool == above->pool);
  block->shown.bytes += above->shown.bytes;
  block->next = above->next;
  above->next->prev = block;
  slab_put(&allocator->blocks, above);
}

struct block *pool_put(struct allocator *allocator, struct block *block) {
  if (block->next->state == BLOCK_FREE) {
    pool_remove(allocator, block->next);
    merge_above(allocator, block);
  }
  if (block->prev->state == BLOCK_FREE) {
    block = block->prev;
    pool_remove(allocator, block);
    merge_above(allocator, block);
  }
  pool_insert(allocator, block);
  return block;
}

void pool_free(struct allocator *allocator, struct block *block) {
  int kind = block->pool->kind;
  stats_block_inactive(allocator, block);
  pool_put(allocator, block);
  stats_settle(allocator, kind);
}
