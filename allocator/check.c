/* check.c: openreg_memory_is_valid, the walk over everything that allocator.c says must be true.
 *
 * It trusts nothing that it checks: sums are made anew from the blocks in the order of their
 * addresses and are compared with the statistics, and each tree and queue is counted on its own.
 */
#include "allocator/stats.h"

#include <stdarg.h>
#include <stdio.h>

/* Sums of one walk, for each kind of pool. */
struct sums {
  int64_t segments, reserved_bytes, allocated, allocated_bytes, active, active_bytes,
      requested_bytes, splits, split_bytes;
};

struct walk {
  struct allocator *allocator;
  struct sums kinds[OPENREG_POOL_KINDS];
  size_t blocks, segments, free_blocks, awaiting_idle, events, awaiting_importers, imports, uses;
  size_t starting, starts; /* blocks that begin somewhere; beginnings that are found */
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

static size_t uses_of(const struct block *block) {
  size_t count = 0;
  for (const struct use *use = block->uses; use; use = use->next)
    count++;
  return count;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The block that is found by an address of the arena, or NULL. */
static const struct block *found_at(const struct allocator *allocator, const char *address) {
  size_t granule = (size_t)(address - allocator->base) / GRANULE_BYTES;
  return allocator->starts[granule] ? *allocator_start(allocator, address) : NULL;
}

static bool active_is_valid(const struct walk *walk, const struct block *block) {
  const openreg_block *shown = &block->shown;
  if (shown->requested_bytes == 0 || shown->requested_bytes > shown->bytes)
    return broken(walk, "block %p has %zu bytes of %zu requested", shown->address, shown->bytes,
                  shown->requested_bytes);
  if (block->state == BLOCK_AWAITING_IMPORTERS
          ? !block->is_shared
          : block->is_shared && block->state != BLOCK_ALLOCATED)
    return broken(walk, "block %p is %sshared", shown->address, block->is_shared ? "" : "not ");
  return true;
}

static bool block_is_valid(const struct walk *walk, const struct block *block,
                           const char *address) {
  const openreg_block *shown = &block->shown;
  const struct segment *segment = block->segment;
  if (block_address(block) != address || shown->bytes == 0 || shown->bytes % UNIT_BYTES != 0)
    return broken(walk, "block %p of %zu bytes does not lie where it should", shown->address,
                  shown->bytes);
  if (block->next && block->next->prev != block)
    return broken(walk, "block %p is not linked where it lies", shown->address);
  if (block->pool != segment->pool || shown->stream != segment->stream ||
      shown->device != walk->allocator->device)
    return broken(walk, "block %p is not of its segment's pool and stream", shown->address);
  if (block->next && block->next->state == block->state &&
      (block->state == BLOCK_FREE || block->state == BLOCK_UNMAPPED))
    return broken(walk, "free blocks %p and %p were not merged", shown->address,
                  block->next->shown.address);
  if (block->state == BLOCK_UNMAPPED &&
      (!block_is_expandable(block) || shown->bytes % segment->page_bytes != 0 ||
       (size_t)(address - segment->address) % segment->page_bytes != 0))
    return broken(walk, "block %p is not mapped", shown->address);
  if (!block_is_active(block) && block->state != BLOCK_FREE && block->state != BLOCK_UNMAPPED)
    return broken(walk, "block %p has state %d", shown->address, (int)block->state);
  bool found = found_at(walk->allocator, address) == block;
  if (found != (block->state == BLOCK_ALLOCATED && !segment->is_raw))
    return broken(walk, "block %p is %sfound by its address", shown->address, found ? "" : "not ");
  return !block_is_active(block) || active_is_valid(walk, block);
}

static void add_active(struct walk *walk, const struct block *block) {
  struct sums *sums = &walk->kinds[block->pool->kind];
  bool waits = block->state == BLOCK_AWAITING_STREAMS;
  sums->allocated += !waits;
  sums->allocated_bytes += waits ? 0 : (int64_t)block->shown.bytes;
  sums->active++;
  sums->active_bytes += (int64_t)block->shown.bytes;
  sums->requested_bytes += (int64_t)block->shown.requested_bytes;
  walk->awaiting_idle += waits && block->events == 0;
  walk->events += waits ? (size_t)block->events : 0;
  walk->awaiting_importers += block->state == BLOCK_AWAITING_IMPORTERS;
  walk->uses += uses_of(block) + (waits ? (size_t)block->events : 0);
}

static void add_block(struct walk *walk, const struct block *block) {
  struct sums *sums = &walk->kinds[block->pool->kind];
  walk->blocks++;
  if (block->state != BLOCK_UNMAPPED)
    sums->reserved_bytes += (int64_t)block->shown.bytes;
  if (block_is_active(block))
    add_active(walk, block);
  if (block->state != BLOCK_FREE)
    return;
  walk->free_blocks++;
  if (block_is_split(block) && !block_is_expandable(block)) {
    sums->splits++;
    sums->split_bytes += (int64_t)block->shown.bytes;
  }
}

/* ---- segments -------------------------------------------------------------------------------- */

static bool segment_is_valid(struct walk *walk, const struct segment *segment) {
  const char *address = segment->address, *end = segment->address + segment->bytes;
  if (segment->above && (segment->above->below != segment ||
                         (segment->above->address < end && !segment_is_sourced(segment))))
    return broken(walk, "segment %p is not linked where it lies", (void *)segment->address);
  walk->segments++;
  walk->kinds[segment->pool->kind].segments += segment->page_bytes == 0;
  for (const struct block *block = segment->first; block; block = block->next) {
    if (block->segment != segment || !block_is_valid(walk, block, address))
      return block->segment == segment ? false : broken(walk, "a block is of another segment");
    add_block(walk, block);
    walk->starting += block->state == BLOCK_ALLOCATED && !segment->is_raw;
    if (block->state != BLOCK_UNMAPPED && !segment_is_sourced(segment))
      for (const char *unit = address; unit < block_end(block); unit += UNIT_BYTES)
        walk->starts += found_at(walk->allocator, unit) != NULL;
    address = block_end(block);
  }
  return address == end ||
         broken(walk, "the blocks of segment %p do not fill it", (void *)segment->address);
}

static bool segments_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  const char *end = allocator->base;
  bool without_gap = true;
  for (const struct segment *segment = allocator->lowest; segment; segment = segment->above) {
    without_gap = without_gap && segment->address == end;
    if (segment == allocator->below_gap && !without_gap)
      return broken(walk, "there is a gap below segment %p", (void *)segment->address);
    if (!segment_is_valid(walk, segment))
      return false;
    end = segment->address + segment->bytes;
  }
  if (end > allocator->base + allocator->arena_bytes)
    return broken(walk, "the segments do not fit into the arena");
  for (const struct segment *segment = allocator->first_sourced; segment; segment = segment->above)
    if (!segment_is_valid(walk, segment))
      return false;
  return walk->starts == walk->starting ||
         broken(walk, "there are starts of blocks that do not exist");
}

/* ---- trees, lists, records ------------------------------------------------------------------- */

static bool pools_are_valid(const struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  size_t count = 0;
  bool valid = true;
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++) {
    valid = valid && openreg_tree_is_valid(allocator->pools[kind].free, &count);
    for (const struct private_pool *own = allocator->private_pools; own; own = own->next)
      valid = valid && own->pools[kind].owner == own && own->pools[kind].kind == kind &&
              openreg_tree_is_valid(own->pools[kind].free, &count);
  }
  if (!valid)
    return broken(walk, "a pool's free blocks are not in order");
  return count == walk->free_blocks ||
         broken(walk, "%zu blocks are free, %zu are in pools", walk->free_blocks, count);
}

static bool private_pools_are_valid(const struct walk *walk) {
  for (const struct private_pool *own = walk->allocator->private_pools; own; own = own->next) {
    size_t segments = 0;
    for (const struct segment *segment = NULL; (segment = segment_next(walk->allocator, segment));)
      segments += segment->pool->owner == own;
    if (segments != own->segments)
      return broken(walk, "a private pool has %zu segments, not %zu", segments, own->segments);
  }
  return true;
}

static bool waiting_is_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  size_t streams = 0, events = 0, importers = 0;
  for (const struct block *block = allocator->awaiting_idle; block; block = block->waiting)
    streams += block->state == BLOCK_AWAITING_STREAMS && block->events == 0;
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    for (const struct use *use = allocator->events[stream].first; use; use = use->next)
      events += use->block->state == BLOCK_AWAITING_STREAMS && use->stream == stream;
  for (const struct block *block = allocator->awaiting_importers; block; block = block->waiting) {
    bool is_closing = block->state == BLOCK_CLOSING_IMPORT;
    if (!block->is_shared || (!is_closing && block->state != BLOCK_AWAITING_IMPORTERS))
      return broken(walk, "block %p waits for no process", block->shown.address);
    importers += !is_closing;
    walk->imports += is_closing;
    walk->uses += is_closing ? uses_of(block) : 0;
  }
  if (streams != walk->awaiting_idle || events != walk->events || events != allocator->event_count)
    return broken(walk, "blocks that wait for streams are not those that are listed");
  return importers == walk->awaiting_importers ||
         broken(walk, "%zu blocks await importers, %zu are listed", walk->awaiting_importers,
                importers);
}

static bool imports_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  const struct block *before = NULL;
  for (const struct block *block = allocator->imports; block; block = block->next) {
    const openreg_block *shown = &block->shown;
    bool inside = (size_t)(block_address(block) - allocator->base) < allocator->arena_bytes;
    if (block->state != BLOCK_IMPORTED || !block->is_shared || block->pool ||
        block->prev != before || inside || shown->device != allocator->device ||
        shown->bytes < shown->requested_bytes || shown->requested_bytes == 0)
      return broken(walk, "import %p does not show what it is", shown->address);
    before = block;
    walk->imports++;
    walk->uses += uses_of(block);
  }
  return true;
}

static bool records_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  size_t blocks = walk->blocks + allocator->empty_blocks + walk->imports;
  if (slab_taken(&allocator->blocks) != blocks)
    return broken(walk, "%zu records of blocks are taken, %zu blocks exist",
                  slab_taken(&allocator->blocks), blocks);
  if (slab_taken(&allocator->segments) != walk->segments)
    return broken(walk, "%zu records of segments are taken, %zu segments exist",
                  slab_taken(&allocator->segments), walk->segments);
  return slab_taken(&allocator->uses) == walk->uses ||
         broken(walk, "%zu records of uses are taken, %zu uses exist", slab_taken(&allocator->uses),
                walk->uses);
}

/* ---- statistics ------------------------------------------------------------------------------ */

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

static bool stats_are_valid(struct walk *walk) {
  const openreg_memory_stats *stats = &walk->allocator->stats;
  const struct sums *small = &walk->kinds[OPENREG_POOL_SMALL];
  const struct sums *large = &walk->kinds[OPENREG_POOL_LARGE];
#define AGREES(name, sum) stat_is(walk, #name, stats->name, small->sum, large->sum)
  return AGREES(allocation, allocated) && AGREES(allocated_bytes, allocated_bytes) &&
         AGREES(active, active) && AGREES(active_bytes, active_bytes) &&
         AGREES(requested_bytes, requested_bytes) && AGREES(segment, segments) &&
         AGREES(reserved_bytes, reserved_bytes) && AGREES(inactive_split, splits) &&
         AGREES(inactive_split_bytes, split_bytes);
#undef AGREES
}

bool openreg_memory_is_valid(int device) {
  struct walk walk = {0};
  if (openreg_allocator_peek(device, &walk.allocator) != OPENREG_OK)
    return false;
  if (!walk.allocator)
    return true;
  allocator_lock(walk.allocator);
  bool valid = segments_are_valid(&walk) && pools_are_valid(&walk) &&
               private_pools_are_valid(&walk) && waiting_is_valid(&walk) &&
               imports_are_valid(&walk) && records_are_valid(&walk) && stats_are_valid(&walk);
  allocator_unlock(walk.allocator);
  return valid;
}
