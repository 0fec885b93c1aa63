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
#include "freelist.h"

/* ---- two pools for each memory pool and stream ----------------------------------------------- */

/* What was found comes first: a thread that allocates in a memory pool goes on to do so. */
struct pool *pools_find(struct allocator *allocator, uint64_t mempool, int stream) {
  for (struct pool **link = &allocator->all_pools; *link; link = &(*link)->next) {
    struct pool *pools = *link;
    if (pools->mempool != mempool || pools->stream != stream)
      continue;
    *link = pools->next;
    pools->next = allocator->all_pools;
    return allocator->all_pools = pools;
  }
  return NULL;
}

static struct pool *pools_make(struct allocator *allocator, uint64_t mempool, int stream) {
  struct pool *pools = allocator->spare_pools;
  if (pools)
    allocator->spare_pools = pools->next;
  else
    pools = pages_map(2 * sizeof *pools);
  if (!pools)
    return NULL;
  for (int large = 0; large < 2; large++) {
    pools[large].mempool = mempool;
    pools[large].stream = stream;
    pools[large].kind = large ? OPENREG_POOL_LARGE : OPENREG_POOL_SMALL;
  }
  pools->next = allocator->all_pools;
  allocator->all_pools = pools;
  if (mempool == 0)
    allocator->pools[stream] = pools;
  return pools;
}

struct pool *pools_open(struct allocator *allocator, uint64_t mempool, int stream) {
  struct pool *pools = pools_find(allocator, mempool, stream);
  if (pools)
    return pools;
  return mempool_account_open(allocator, mempool) ? pools_make(allocator, mempool, stream) : NULL;
}

void pools_retire(struct allocator *allocator) {
  for (struct pool **link = &allocator->all_pools; *link;) {
    struct pool *pools = *link;
    if (pools->mempool == 0 || pools[0].reserved_bytes || pools[1].reserved_bytes) {
      link = &pools->next;
      continue;
    }
    *link = pools->next;
    pools->next = allocator->spare_pools;
    allocator->spare_pools = pools;
  }
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
  const struct block *below = block->prev, *above = block->next;
  const bool joins_below = below->state == BLOCK_FREE, joins_above = above->state == BLOCK_FREE;
  const size_t bytes = block->shown.bytes + (joins_below ? below->shown.bytes : 0) +
                       (joins_above ? above->shown.bytes : 0);
  if (bytes < GRANULE_BYTES)
    return (struct splits){1 - joins_below - joins_above, (int64_t)block->shown.bytes};
  struct splits change = {0};
  const char *from = block_address(block), *to = block_end(block);
  if (joins_below) {
    splits_add(&change, block_address(below), from, -1);
    from = block_address(below);
  }
  if (joins_above) {
    splits_add(&change, to, block_end(above), -1);
    to = block_end(above);
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
  for (struct pool *pools = allocator->all_pools; pools; pools = pools->next)
    for (int large = 0; large < 2; large++)
      pool_merge(allocator, &pools[large]);
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

struct splits pool_put_change(const struct block *block) {
  return splits_of_joining(block);
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
  if (memory_is_observed())
    observe_block(OPENREG_MEMORY_FREE_COMPLETED, block);
  if (memory_is_debugged())
    debug_freed(allocator, block);
  pool_put(allocator, block);
  stats_settle_splits(allocator, kind);
}
