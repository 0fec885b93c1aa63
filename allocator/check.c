/* check.c: openreg_memory_is_valid, which checks every invariant that allocator.c lists.
 *
 * It trusts nothing that it checks: it computes all sums again from the blocks in address order,
 * compares them with the statistics, and counts each tree and queue separately.
 */
#include "allocator/stats.h"

#include <stdarg.h>
#include <stdio.h>

/* The sums of one walk, for each kind of pool. */
struct sums {
  int64_t segments, reserved_bytes, allocated, allocated_bytes, active, active_bytes,
      requested_bytes, splits, split_bytes;
};

struct walk {
  struct allocator *allocator;
  struct sums kinds[OPENREG_POOL_KINDS];
  size_t blocks, segments, free_blocks, awaiting_idle, events, awaiting_importers, imports,
      stream_uses;
  size_t starting, starts; /* blocks that must be in the address map; entries found in it */
};

/* Records an error, and returns false for the caller to return. */
__attribute__((format(printf, 2, 3))) static bool report_broken(const struct walk *walk,
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
  for (const struct stream_use *use = block->stream_uses; use; use = use->next)
    count++;
  return count;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Returns the address map's entry for an address of the arena, or NULL. */
static const struct block *block_at(const struct allocator *allocator, const char *address) {
  size_t granule = (size_t)(address - allocator->base) / GRANULE_BYTES;
  return allocator->address_map[granule] ? *address_map_slot(allocator, address) : NULL;
}

static bool active_is_valid(const struct walk *walk, const struct block *block) {
  const openreg_block *base = &block->base;
  if (base->requested_bytes == 0 || base->requested_bytes > base->bytes)
    return report_broken(walk, "block %p has %zu bytes of %zu requested", base->address,
                         base->bytes, base->requested_bytes);
  if (block->state == BLOCK_AWAITING_IMPORTERS
          ? !block->is_shared
          : block->is_shared && block->state != BLOCK_ALLOCATED)
    return report_broken(walk, "block %p is %sshared", base->address,
                         block->is_shared ? "" : "not ");
  return true;
}

static bool block_is_valid(const struct walk *walk, const struct block *block,
                           const char *address) {
  const openreg_block *base = &block->base;
  const struct segment *segment = block->segment;
  if (block_address(block) != address || base->bytes == 0 || base->bytes % UNIT_BYTES != 0)
    return report_broken(walk, "block %p of %zu bytes does not lie where it should", base->address,
                         base->bytes);
  if (block->next && block->next->prev != block)
    return report_broken(walk, "block %p is not linked where it lies", base->address);
  if (block->pool != segment->pool || base->stream != segment->stream ||
      base->device != walk->allocator->device)
    return report_broken(walk, "block %p is not of its segment's pool and stream", base->address);
  if (block->next && block->next->state == block->state &&
      (block->state == BLOCK_FREE || block->state == BLOCK_UNMAPPED))
    return report_broken(walk, "free blocks %p and %p were not merged", base->address,
                         block->next->base.address);
  if (block->state == BLOCK_UNMAPPED &&
      (!block_is_expandable(block) || base->bytes % segment->page_bytes != 0 ||
       (size_t)(address - segment->address) % segment->page_bytes != 0))
    return report_broken(walk, "block %p is not mapped", base->address);
  if (!block_is_active(block) && block->state != BLOCK_FREE && block->state != BLOCK_UNMAPPED)
    return report_broken(walk, "block %p has state %d", base->address, (int)block->state);
  bool found = block_at(walk->allocator, address) == block;
  if (found != (block->state == BLOCK_ALLOCATED && !segment->is_raw))
    return report_broken(walk, "block %p is %sfound by its address", base->address,
                         found ? "" : "not ");
  return !block_is_active(block) || active_is_valid(walk, block);
}

static void add_active(struct walk *walk, const struct block *block) {
  struct sums *sums = &walk->kinds[block->pool->kind];
  bool waits = block->state == BLOCK_AWAITING_STREAMS;
  sums->allocated += !waits;
  sums->allocated_bytes += waits ? 0 : (int64_t)block->base.bytes;
  sums->active++;
  sums->active_bytes += (int64_t)block->base.bytes;
  sums->requested_bytes += (int64_t)block->base.requested_bytes;
  walk->awaiting_idle += waits && block->events == 0;
  walk->events += waits ? (size_t)block->events : 0;
  walk->awaiting_importers += block->state == BLOCK_AWAITING_IMPORTERS;
  walk->stream_uses += uses_of(block) + (waits ? (size_t)block->events : 0);
}

static void add_block(struct walk *walk, const struct block *block) {
  struct sums *sums = &walk->kinds[block->pool->kind];
  walk->blocks++;
  if (block->state != BLOCK_UNMAPPED)
    sums->reserved_bytes += (int64_t)block->base.bytes;
  if (block_is_active(block))
    add_active(walk, block);
  if (block->state != BLOCK_FREE)
    return;
  walk->free_blocks++;
  if (block_is_split(block) && !block_is_expandable(block)) {
    sums->splits++;
    sums->split_bytes += (int64_t)block->base.bytes;
  }
}

/* ---- segments -------------------------------------------------------------------------------- */

static bool segment_is_valid(struct walk *walk, const struct segment *segment) {
  const char *address = segment->address, *end = segment->address + segment->bytes;
  if (segment->above && (segment->above->below != segment ||
                         (segment->above->address < end && !segment_is_custom(segment))))
    return report_broken(walk, "segment %p is not linked where it lies", (void *)segment->address);
  walk->segments++;
  walk->kinds[segment->pool->kind].segments += segment->page_bytes == 0;
  for (const struct block *block = segment->first; block; block = block->next) {
    if (block->segment != segment || !block_is_valid(walk, block, address))
      return block->segment == segment ? false
                                       : report_broken(walk, "a block is of another segment");
    add_block(walk, block);
    walk->starting += block->state == BLOCK_ALLOCATED && !segment->is_raw;
    if (block->state != BLOCK_UNMAPPED && !segment_is_custom(segment))
      for (const char *unit = address; unit < block_end(block); unit += UNIT_BYTES)
        walk->starts += block_at(walk->allocator, unit) != NULL;
    address = block_end(block);
  }
  return address == end ||
         report_broken(walk, "the blocks of segment %p do not fill it", (void *)segment->address);
}

static bool segments_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  const char *end = allocator->base;
  bool without_gap = true;
  for (const struct segment *segment = allocator->lowest; segment; segment = segment->above) {
    without_gap = without_gap && segment->address == end;
    if (segment == allocator->last_contiguous && !without_gap)
      return report_broken(walk, "there is a gap below segment %p", (void *)segment->address);
    if (!segment_is_valid(walk, segment))
      return false;
    end = segment->address + segment->bytes;
  }
  if (end > allocator->base + allocator->arena_bytes)
    return report_broken(walk, "the segments do not fit into the arena");
  for (const struct segment *segment = allocator->first_custom; segment; segment = segment->above)
    if (!segment_is_valid(walk, segment))
      return false;
  return walk->starts == walk->starting ||
         report_broken(walk, "there are starts of blocks that do not exist");
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
    return report_broken(walk, "a pool's free blocks are not in order");
  return count == walk->free_blocks ||
         report_broken(walk, "%zu blocks are free, %zu are in pools", walk->free_blocks, count);
}

static bool private_pools_are_valid(const struct walk *walk) {
  for (const struct private_pool *own = walk->allocator->private_pools; own; own = own->next) {
    size_t segments = 0;
    for (const struct segment *segment = NULL; (segment = segment_next(walk->allocator, segment));)
      segments += segment->pool->owner == own;
    if (segments != own->segments)
      return report_broken(walk, "a private pool has %zu segments, not %zu", segments,
                           own->segments);
  }
  return true;
}

static bool waiting_is_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  size_t streams = 0, events = 0, importers = 0;
  for (const struct block *block = allocator->awaiting_idle; block; block = block->waiting)
    streams += block->state == BLOCK_AWAITING_STREAMS && block->events == 0;
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    for (const struct stream_use *use = allocator->events[stream].first; use; use = use->next)
      events += use->block->state == BLOCK_AWAITING_STREAMS && use->stream == stream;
  for (const struct block *block = allocator->awaiting_importers; block; block = block->waiting) {
    bool is_closing = block->state == BLOCK_CLOSING_IMPORT;
    if (!block->is_shared || (!is_closing && block->state != BLOCK_AWAITING_IMPORTERS))
      return report_broken(walk, "block %p waits for no process", block->base.address);
    importers += !is_closing;
    walk->imports += is_closing;
    walk->stream_uses += is_closing ? uses_of(block) : 0;
  }
  if (streams != walk->awaiting_idle || events != walk->events || events != allocator->event_count)
    return report_broken(walk, "blocks that wait for streams are not those that are listed");
  return importers == walk->awaiting_importers ||
         report_broken(walk, "%zu blocks await importers, %zu are listed", walk->awaiting_importers,
                       importers);
}

static bool imports_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  const struct block *before = NULL;
  for (const struct block *block = allocator->imports; block; block = block->next) {
    const openreg_block *base = &block->base;
    bool inside = (size_t)(block_address(block) - allocator->base) < allocator->arena_bytes;
    if (block->state != BLOCK_IMPORTED || !block->is_shared || block->pool ||
        block->prev != before || inside || base->device != allocator->device ||
        base->bytes < base->requested_bytes || base->requested_bytes == 0)
      return report_broken(walk, "import %p does not show what it is", base->address);
    before = block;
    walk->imports++;
    walk->stream_uses += uses_of(block);
  }
  return true;
}

static bool records_are_valid(struct walk *walk) {
  const struct allocator *allocator = walk->allocator;
  size_t blocks = walk->blocks + allocator->empty_blocks + walk->imports;
  if (slab_taken(&allocator->blocks) != blocks)
    return report_broken(walk, "%zu records of blocks are taken, %zu blocks exist",
                         slab_taken(&allocator->blocks), blocks);
  if (slab_taken(&allocator->segments) != walk->segments)
    return report_broken(walk, "%zu records of segments are taken, %zu segments exist",
                         slab_taken(&allocator->segments), walk->segments);
  return slab_taken(&allocator->stream_uses) == walk->stream_uses ||
         report_broken(walk, "%zu records of uses are taken, %zu uses exist",
                       slab_taken(&allocator->stream_uses), walk->stream_uses);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static bool stat_is(struct walk *walk, const char *name,
                    const openreg_stat stats[OPENREG_POOL_KINDS], int64_t small, int64_t large) {
  const int64_t sums[OPENREG_POOL_KINDS] = {small + large, small, large};
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
    if (stats[kind].current != sums[kind])
      return report_broken(walk, "%s is %lld, the sum is %lld", name,
                           (long long)stats[kind].current, (long long)sums[kind]);
    if (stats[kind].peak < stats[kind].current)
      return report_broken(walk, "the peak of %s is %lld, less than %lld", name,
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
  if (openreg_allocator_get_existing(device, &walk.allocator) != OPENREG_OK)
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
