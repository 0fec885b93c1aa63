/* check.c: openreg_memory_is_valid, the walk over everything that internal.h says must be true.
 *
 * It trusts nothing that it checks: sums are made anew from the blocks and ranges in address order
 * and are compared with the statistics, and each free list is counted on its own.
 */
#include "allocator/stats.h"

#include <stdarg.h>
#include <stdio.h>

/* Sums of one walk, for each kind of pool. */
struct sums {
  struct holding holding;
  struct splits splits;
  int64_t allocated, allocated_bytes, active, active_bytes, requested_bytes;
};

struct walk {
  struct allocator *allocator;
  struct sums kinds[OPENREG_POOL_KINDS];
  size_t blocks, ranges, free_blocks, deferred, awaiting, imports;
};

/* Records what is wrong; false, for the caller to return. */
__attribute__((format(printf, 2, 3))) static bool broken(const struct walk *walk,
                                                         const char *format, ...) {
  char what[128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the allocator of device %d is broken: %s",
               walk->allocator->device, what);
  return false;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Adds a range of free bytes between two blocks that are not. */
static void add_free(struct sums *sums, const char *from, const char *to) {
  struct span whole = openreg_whole_granules(from, to);
  if (whole.from == whole.to) {
    sums->splits.pieces++;
    sums->splits.bytes += to - from;
    return;
  }
  int64_t below = whole.from - from, above = to - whole.to;
  sums->splits.pieces += (below > 0) + (above > 0);
  sums->splits.bytes += below + above;
}

static void add_active(struct sums *sums, const struct block *block) {
  bool allocated = block->state != BLOCK_DEFERRED;
  sums->allocated += allocated;
  sums->allocated_bytes += allocated ? (int64_t)block->shown.bytes : 0;
  sums->active++;
  sums->active_bytes += (int64_t)block->shown.bytes;
  sums->requested_bytes += (int64_t)block->shown.requested_bytes;
}

static bool block_is_valid(struct walk *walk, const struct range *range, const struct block *block,
                           const char *address) {
  const openreg_block *shown = &block->shown;
  struct allocator *allocator = walk->allocator;
  if (block->prev->next != block || block_address(block) != address)
    return broken(walk, "block %p is not linked where it lies", shown->address);
  if (shown->bytes == 0 || shown->bytes % UNIT_BYTES != 0 ||
      block_extent(block) > (size_t)(range->address + range->bytes - address))
    return broken(walk, "block %p has %zu bytes", shown->address, shown->bytes);
  if (block->pool != range->pool)
    return broken(walk, "block %p is not of its segment's pool", shown->address);
  if (block->state == BLOCK_FREE && block->next->state == BLOCK_FREE)
    return broken(walk, "free blocks %p and %p were not merged", shown->address,
                  block->next->shown.address);
  bool active = block_is_active(block);
  if (!active && block->state != BLOCK_FREE)
    return broken(walk, "block %p has state %d", shown->address, (int)block->state);
  if (!active && block_has_streams(block))
    return broken(walk, "free block %p is used by a stream", shown->address);
  if (block->state == BLOCK_AWAITING_IMPORTERS
          ? !block->is_shared
          : block->is_shared && block->state != BLOCK_ALLOCATED)
    return broken(walk, "block %p is %sshared", shown->address, block->is_shared ? "" : "not ");
  if (active &&
      (shown->requested_bytes == 0 || shown->requested_bytes > shown->bytes ||
       (shown->bytes - shown->requested_bytes >= UNIT_BYTES && !block->pool->is_unsplit) ||
       shown->stream != block->pool->stream || shown->device != allocator->device))
    return broken(walk, "block %p does not show what it is", shown->address);
  bool found = *allocator_start(allocator, address) == block;
  if (found != (block->state == BLOCK_ALLOCATED))
    return broken(walk, "block %p is %sfound by its address", shown->address, found ? "" : "not ");
  return true;
}

static bool blocks_are_valid(struct walk *walk, const struct range *range) {
  struct sums *sums = &walk->kinds[range->pool->kind];
  const char *address = range->address, *active_end = range->address;
  int64_t starting = 0;
  for (struct block *block = range->edge.next; block != &range->edge; block = block->next) {
    if (!block_is_valid(walk, range, block, address))
      return false;
    walk->blocks++;
    starting += block->state == BLOCK_ALLOCATED;
    walk->deferred += block->state == BLOCK_DEFERRED;
    walk->awaiting += block->state == BLOCK_AWAITING_IMPORTERS;
    walk->free_blocks += block->state == BLOCK_FREE;
    if (block_is_active(block)) {
      if (active_end < address)
        add_free(sums, active_end, address);
      add_active(sums, block);
      active_end = block_address(block) + block_extent(block);
    }
    address += block_extent(block);
  }
  if (active_end < address)
    add_free(sums, active_end, address);
  if (address != range->address + range->bytes)
    return broken(walk, "the blocks of segment %p do not fill it", (void *)range->address);
  int64_t starts = 0;
  for (address = range->address; address < range->address + range->bytes; address += UNIT_BYTES)
    starts += *allocator_start(walk->allocator, address) != NULL;
  if (starts != starting)
    return broken(walk, "segment %p has starts of blocks that it does not hold",
                  (void *)range->address);
  return true;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static bool range_is_valid(struct walk *walk, const struct range *range, const char *address) {
  if (range->address != address || range->bytes == 0 || range->bytes % GRANULE_BYTES != 0)
    return broken(walk, "range %p has %zu bytes", (void *)range->address, range->bytes);
  if (range->above && range->above->below != range)
    return broken(walk, "range %p is not linked where it lies", (void *)range->address);
  bool unsplit = range->pool && range->pool->is_unsplit;
  if (range->above && range->above->pool == range->pool && !unsplit)
    return broken(walk, "range %p was not joined with the next", (void *)range->address);
  if (!range->pool) {
    if (range->edge.next != &range->edge || range->edge.prev != &range->edge)
      return broken(walk, "unreserved range %p has blocks", (void *)range->address);
    return true;
  }
  if (unsplit && range->edge.next != range->edge.prev)
    return broken(walk, "segment %p was split", (void *)range->address);
  struct holding *holding = &walk->kinds[range->pool->kind].holding;
  holding->segments++;
  holding->reserved_bytes += (int64_t)range->bytes;
  return blocks_are_valid(walk, range);
}

static bool ranges_are_valid(struct walk *walk) {
  struct allocator *allocator = walk->allocator;
  const char *address = allocator->base;
  for (struct range *range = &allocator->lowest; range; range = range->above) {
    if (!range_is_valid(walk, range, address))
      return false;
    address += range->bytes;
    walk->ranges++;
  }
  if (address != allocator->base + allocator->capacity)
    return broken(walk, "the ranges do not fill the arena");
  return true;
}

/* ---- lists, records, statistics -------------------------------------------------------------- */

static int64_t bytes_reserved_by(const struct allocator *allocator, const struct pool *pool) {
  int64_t bytes = 0;
  for (const struct range *range = &allocator->lowest; range; range = range->above)
    bytes += range->pool == pool ? (int64_t)range->bytes : 0;
  return bytes;
}

static bool pool_is_valid(const struct walk *walk, const struct pool *pool, size_t *free_blocks,
                          int64_t *reserved) {
  int64_t bytes = bytes_reserved_by(walk->allocator, pool);
  if (!openreg_freelist_is_valid(&pool->free, free_blocks))
    return broken(walk, "a free list of stream %d disagrees with itself", pool->stream);
  if (pool->reserved_bytes != bytes)
    return broken(walk, "a pool of stream %d has reserved %lld bytes, its ranges are %lld",
                  pool->stream, (long long)pool->reserved_bytes, (long long)bytes);
  *reserved += bytes;
  return true;
}

/* The two pools are as they were made, and are found. */
static bool pools_are_themselves(const struct walk *walk, const struct pool *pools) {
  const struct pool *large = &pools[1];
  bool found = pools->mempool != 0 || walk->allocator->pools[pools->stream] == pools;
  for (const struct pool *other = pools->next; other; other = other->next)
    found &= other->mempool != pools->mempool || other->stream != pools->stream;
  return found && pools->kind == OPENREG_POOL_SMALL && large->kind == OPENREG_POOL_LARGE &&
         large->mempool == pools->mempool && large->stream == pools->stream &&
         large->is_unsplit == pools->is_unsplit;
}

static bool pools_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  size_t free_blocks = 0, none = 0;
  int64_t reserved = 0, spare = 0;
  for (const struct pool *pools = allocator->all_pools; pools; pools = pools->next) {
    if (!pools_are_themselves(walk, pools))
      return broken(walk, "the pools of stream %d are not themselves", pools->stream);
    for (int large = 0; large < 2; large++)
      if (!pool_is_valid(walk, &pools[large], &free_blocks, &reserved))
        return false;
  }
  for (const struct pool *pools = allocator->spare_pools; pools; pools = pools->next)
    for (int large = 0; large < 2; large++) {
      if (!pool_is_valid(walk, &pools[large], &none, &spare))
        return false;
      if (none || spare)
        return broken(walk, "a spare pool of stream %d is in use", pools->stream);
    }
  if (reserved != walk->kinds[OPENREG_POOL_SMALL].holding.reserved_bytes +
                      walk->kinds[OPENREG_POOL_LARGE].holding.reserved_bytes)
    return broken(walk, "a segment is of a pool that is not listed");
  if (free_blocks != walk->free_blocks)
    return broken(walk, "%zu blocks are free, %zu are in free lists", walk->free_blocks,
                  free_blocks);
  return true;
}

static bool waiting_is_valid(struct walk *walk) {
  size_t deferred = 0, awaiting = 0;
  for (struct block *block = walk->allocator->deferred; block; block = block->waiting) {
    if (block->state != BLOCK_DEFERRED || !block_has_streams(block))
      return broken(walk, "block %p waits for nothing", block->shown.address);
    deferred++;
  }
  if (deferred != walk->deferred)
    return broken(walk, "%zu blocks are deferred, %zu are listed", walk->deferred, deferred);
  for (const struct block *block = walk->allocator->awaiting; block; block = block->waiting) {
    bool is_closing = block->state == BLOCK_CLOSING_IMPORT;
    if (!block->is_shared || (!is_closing && block->state != BLOCK_AWAITING_IMPORTERS) ||
        (is_closing && (block->pool || !block_has_streams(block))))
      return broken(walk, "block %p waits for no process", block->shown.address);
    awaiting += !is_closing;
    walk->imports += is_closing;
  }
  if (awaiting != walk->awaiting)
    return broken(walk, "%zu blocks await importers, %zu are listed", walk->awaiting, awaiting);
  return true;
}

static bool imports_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  const struct block *before = NULL;
  for (const struct block *block = allocator->imports; block; block = block->next) {
    const openreg_block *shown = &block->shown;
    bool inside = (size_t)(block_address(block) - allocator->base) < allocator->capacity;
    if (block->state != BLOCK_IMPORTED || !block->is_shared || block->pool ||
        block->prev != before || inside || shown->device != allocator->device ||
        shown->bytes < shown->requested_bytes || shown->requested_bytes == 0)
      return broken(walk, "import %p does not show what it is", shown->address);
    before = block;
    walk->imports++;
  }
  return true;
}

static bool records_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  size_t blocks = walk->blocks + allocator->empty_blocks + walk->imports;
  size_t taken = slab_taken(&allocator->blocks), ranges = slab_taken(&allocator->ranges);
  if (taken != blocks)
    return broken(walk, "%zu records of blocks are taken, %zu blocks exist", taken, blocks);
  if (ranges + 1 != walk->ranges) /* the lowest is not from the slab */
    return broken(walk, "%zu records of ranges are taken, %zu ranges exist", ranges, walk->ranges);
  return true;
}

static bool stat_is(struct walk *walk, const char *name,
                    const openreg_stat stats[OPENREG_POOL_KINDS], int64_t small, int64_t large) {
  const int64_t sums[OPENREG_POOL_KINDS] = {small + large, small, large};
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
    if (stats[kind].current != sums[kind])
      return broken(walk, "%s is %lld, the sum is %lld", name, (long long)stats[kind].current,
                    (long long)sums[kind]);
    if (stats[kind].peak < stats[kind].current)
      return broken(walk, "the peak of %s is %lld, less than %lld", name,
                    (long long)stats[kind].peak, (long long)stats[kind].current);
  }
  return true;
}

/* What is counted for all kinds together is what is counted for each. */
static bool sums_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  struct usage small = openreg_stats_live(allocator, OPENREG_POOL_SMALL),
               large = openreg_stats_live(allocator, OPENREG_POOL_LARGE),
               all = openreg_stats_live(allocator, OPENREG_POOL_ALL);
  struct splits small_splits = openreg_stats_splits(allocator, OPENREG_POOL_SMALL),
                large_splits = openreg_stats_splits(allocator, OPENREG_POOL_LARGE),
                all_splits = openreg_stats_splits(allocator, OPENREG_POOL_ALL);
  if (all.blocks != small.blocks + large.blocks || all.bytes != small.bytes + large.bytes ||
      all.requested_bytes != small.requested_bytes + large.requested_bytes ||
      all_splits.pieces != small_splits.pieces + large_splits.pieces ||
      all_splits.bytes != small_splits.bytes + large_splits.bytes)
    return broken(walk, "the kinds of pools do not add up");
  return true;
}

static bool stats_are_valid(struct walk *walk) {
  openreg_stats_add_up(walk->allocator);
  const openreg_memory_stats *stats = &walk->allocator->stats;
  const struct sums *small = &walk->kinds[OPENREG_POOL_SMALL];
  const struct sums *large = &walk->kinds[OPENREG_POOL_LARGE];
#define AGREES(name, sum) stat_is(walk, #name, stats->name, small->sum, large->sum)
  return AGREES(allocation, allocated) && AGREES(allocated_bytes, allocated_bytes) &&
         AGREES(active, active) && AGREES(active_bytes, active_bytes) &&
         AGREES(requested_bytes, requested_bytes) && AGREES(segment, holding.segments) &&
         AGREES(reserved_bytes, holding.reserved_bytes) && AGREES(inactive_split, splits.pieces) &&
         AGREES(inactive_split_bytes, splits.bytes);
#undef AGREES
}

bool openreg_memory_is_valid(int device) {
  struct walk walk = {0};
  if (openreg_allocator_peek(device, &walk.allocator) != OPENREG_OK)
    return false;
  if (!walk.allocator)
    return true;
  allocator_lock(walk.allocator);
  bool valid = ranges_are_valid(&walk) && pools_are_valid(&walk) && waiting_is_valid(&walk) &&
               imports_are_valid(&walk) && records_are_valid(&walk) && stats_are_valid(&walk) &&
               sums_are_valid(&walk);
  allocator_unlock(walk.allocator);
  return valid;
}
