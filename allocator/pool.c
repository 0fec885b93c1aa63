/* pool.c: the pools of a device; cutting blocks off free ones, and making freed ones whole again.
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
#include "allocator/pool.h"

/* ---- two pools for each memory pool and stream ----------------------------------------------- */

/* What was found comes first: a thread that allocates in a memory pool goes on to do so. */
struct pool *openreg_pools_find(struct allocator *allocator, uint64_t mempool, int stream) {
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
    pools = openreg_pages_map(2 * sizeof *pools);
  if (!pools)
    return NULL;
  for (int large = 0; large < 2; large++) {
    pools[large].mempool = mempool;
    pools[large].stream = stream;
    pools[large].kind = large ? OPENREG_POOL_LARGE : OPENREG_POOL_SMALL;
    pools[large].is_unsplit = openreg_mempool_is_unsplit(mempool);
    pools[large].tally = &allocator->tallies[pools[large].kind];
  }
  pools->next = allocator->all_pools;
  allocator->all_pools = pools;
  if (mempool == 0)
    allocator->pools[stream] = pools;
  return pools;
}

struct pool *openreg_pools_open(struct allocator *allocator, uint64_t mempool, int stream) {
  struct pool *pools = openreg_pools_find(allocator, mempool, stream);
  if (pools)
    return pools;
  return openreg_mempool_account_open(allocator, mempool) ? pools_make(allocator, mempool, stream)
                                                          : NULL;
}

void openreg_pools_retire(struct allocator *allocator) {
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

struct span openreg_whole_granules(const char *begin, const char *end) {
  const uintptr_t mask = ~(uintptr_t)(GRANULE_BYTES - 1);
  uintptr_t from = ((uintptr_t)begin + GRANULE_BYTES - 1) & mask;
  uintptr_t to = (uintptr_t)end & mask;
  return (struct span){(char *)from, (char *)(to > from ? to : from)};
}

struct splits openreg_splits_of(const char *from, const char *to) {
  struct span whole = openreg_whole_granules(from, to);
  if (whole.from == whole.to)
    return (struct splits){from < to, to - from};
  return (struct splits){(from < whole.from) + (whole.to < to),
                         (whole.from - from) + (to - whole.to)};
}

struct splits openreg_pool_free_change(const struct block *block) {
  return splits_of_joining(block);
}

/* ---- cutting and putting together ------------------------------------------------------------ */

void openreg_pool_insert(struct block *block) {
  block->state = BLOCK_FREE;
  freelist_insert(&block->pool->free, block);
}

void openreg_pool_remove(struct block *block) {
  assert(block->state == BLOCK_FREE);
  freelist_remove(&block->pool->free, block);
}

struct block *openreg_block_cut(struct allocator *allocator, struct block *block, size_t bytes) {
  return block_cut_inline(allocator, block, bytes);
}

void openreg_pool_free(struct allocator *allocator, struct block *block) {
  if (memory_is_observed())
    openreg_observe_block(OPENREG_MEMORY_FREE_COMPLETED, block);
  if (memory_is_debugged())
    openreg_debug_freed(allocator, block);
  pool_put_counted(allocator, block);
}
