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
 *
 * The block that a pool freed last is parked: it stays as it was cut, in no free list. Programs
 * tend to ask next for the size that they just gave back, and merging the block only to cut it
 * again would cost half as much as all the rest of both calls. It is counted as if it were merged,
 * and whatever else happens in its pool merges it first. So no figure tells a parked block from a
 * merged one, and no request fails or reserves memory for its sake.
 */
#include "internal.h"

struct pool *pools_make(struct allocator *allocator, int stream) {
  struct pool *pools = pages_map(2 * sizeof *pools);
  if (!pools)
    return NULL;
  pools[0] = (struct pool){.stream = stream, .kind = OPENREG_POOL_SMALL};
  pools[1] = (struct pool){.stream = stream, .kind = OPENREG_POOL_LARGE};
  return allocator->pools[stream] = pools;
}

/* ---- counting -------------------------------------------------------------------------------- */

struct span whole_granules(const char *begin, const char *end) {
  const uintptr_t mask = ~(uintptr_t)(GRANULE_BYTES - 1);
  uintptr_t from = ((uintptr_t)begin + GRANULE_BYTES - 1) & mask;
  uintptr_t to = (uintptr_t)end & mask;
  return (struct span){(char *)from, (char *)(to > from ? to : from)};
}

/* Adds, or with sign -1 subtracts, free bytes whose neighbours are not free. */
static void splits_add(struct splits *splits, const char *from, const char *to, int sign) {
  int64_t pieces = 1, bytes = to - from;
  if (bytes >= GRANULE_BYTES) {
    struct span whole = whole_granules(from, to);
    if (whole.from < whole.to)
      pieces = (from < whole.from) + (whole.to < to);
    bytes -= whole.to - whole.from;
  }
  splits->pieces += sign * pieces;
  splits->bytes += sign * bytes;
}

/* What changes when a block joins its free neighbours. */
static struct splits splits_of_joining(const struct block *block) {
  struct splits change = {0};
  const char *from = block_address(block), *to = block_end(block);
  if (block->prev->state == BLOCK_FREE) {
    splits_add(&change, block_address(block->prev), from, -1);
    from = block_address(block->prev);
  }
  if (block->next->state == BLOCK_FREE) {
    splits_add(&change, to, block_end(block->next), -1);
    to = block_end(block->next);
  }
  splits_add(&change, from, to, 1);
  return change;
}

/* ---- cutting and merging --------------------------------------------------------------------- */

void pool_insert(struct block *block) {
  block->state = BLOCK_FREE;
  freelist_insert(&block->pool->free, block);
}

void pool_remove(struct block *block) {
  assert(block->state == BLOCK_FREE);
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

/* Makes `block` and the one above it one. */
static void merge_above(struct allocator *allocator, struct block *block) {
  struct block *above = block->next;
  assert(block_end(block) == block_address(above) && block->pool == above->pool);
  block->shown.bytes += above->shown.bytes;
  block->next = above->next;
  above->next->prev = block;
  slab_put(&allocator->blocks, above);
}

/* Makes a block of its segment free and one with its free neighbours. */
static void merge(struct allocator *allocator, struct block *block) {
  if (block->next->state == BLOCK_FREE) {
    pool_remove(block->next);
    merge_above(allocator, block);
  }
  if (block->prev->state == BLOCK_FREE) {
    block = block->prev;
    pool_remove(block);
    merge_above(allocator, block);
  }
  pool_insert(block);
}

void pool_merge(struct allocator *allocator, struct pool *pool) {
  if (!pool->parked)
    return;
  merge(allocator, pool->parked);
  pool->parked = NULL;
}

void pools_merge(struct allocator *allocator) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    for (int large = 0; allocator->pools[stream] && large < 2; large++)
      pool_merge(allocator, &allocator->pools[stream][large]);
}

/* ---- in and out ------------------------------------------------------------------------------ */

/* Takes `bytes` of a block in the free list; NULL when none has them. */
static struct block *take_merged(struct allocator *allocator, struct pool *pool, size_t bytes) {
  struct block *block = freelist_best(&pool->free, bytes);
  if (!block)
    return NULL;
  pool_remove(block);
  if (block->shown.bytes > bytes)
    pool_insert(block_cut(allocator, block, bytes));
  return block;
}

struct block *pool_take(struct allocator *allocator, struct pool *pool, size_t bytes) {
  struct block *block = pool->parked;
  struct splits change;
  if (block && block->shown.bytes == bytes) {
    pool->parked = NULL;
    change = pool->parked_change;
  } else {
    pool_merge(allocator, pool);
    block = take_merged(allocator, pool, bytes);
    if (!block)
      return NULL;
    change = splits_of_joining(block);
  }
  struct splits *splits = &allocator->holding[pool->kind].splits;
  splits->pieces -= change.pieces;
  splits->bytes -= change.bytes;
  return block;
}

void pool_put(struct allocator *allocator, struct block *block) {
  struct pool *pool = block->pool;
  pool_merge(allocator, pool);
  struct splits change = splits_of_joining(block);
  struct splits *splits = &allocator->holding[pool->kind].splits;
  splits->pieces += change.pieces;
  splits->bytes += change.bytes;
  block->state = BLOCK_PARKED;
  pool->parked = block;
  pool->parked_change = change;
}

void pool_free(struct allocator *allocator, struct block *block) {
  int kind = block->pool->kind;
  stats_block_inactive(allocator, block);
  pool_put(allocator, block);
  stats_settle_splits(allocator, kind);
}
