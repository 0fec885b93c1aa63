/* segments.c: which ranges of the arena are reserved, and by which pool.
 *
 * The arena is one address range, so a reservation next to a segment of the same pool makes that
 * segment longer, and free neighbours merge across reservations. Hence a large request reserves no
 * more than it lacks, where CUDA reserves at least 20 MiB: that is CUDA's remedy for memory lost
 * between the segments of a pool, which here are one where they touch, and for a cudaMalloc that
 * costs far more than an entry in the ledger. Large segments are placed from the bottom up and
 * small ones from the top down, so that they do not end each other's growth.
 *
 * Memory is given back in whole granules, out of the middle of a segment if need be, which then
 * becomes two. Finding a place walks the ranges: at most two for each segment and one more.
 */
#include "allocator/pool.h"

static size_t round_up_to_granules(size_t bytes) {
  return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
}

static void ring_clear(struct range *range) {
  range->edge.state = BLOCK_EDGE;
  range->edge.prev = range->edge.next = &range->edge;
}

/* Moves the blocks from `first` to the end of its ring to the end of the ring of `range`. */
static void ring_move(struct block *first, struct block *edge, struct range *range) {
  if (first == edge)
    return;
  struct block *last = edge->prev, *end = &range->edge;
  edge->prev = first->prev;
  first->prev->next = edge;
  first->prev = end->prev;
  end->prev->next = first;
  last->next = end;
  end->prev = last;
}

void openreg_segments_initialize(struct allocator *allocator, char *base, size_t bytes) {
  allocator->lowest = (struct range){.address = base, .bytes = bytes};
  ring_clear(&allocator->lowest);
}

/* Cuts a range in two: its first `bytes` remain, the rest with the blocks from `first` on becomes a
 * new range of the same owner, which is returned. */
static struct range *range_cut(struct allocator *allocator, struct range *range, size_t bytes,
                               struct block *first) {
  assert(bytes > 0 && bytes < range->bytes && bytes % GRANULE_BYTES == 0);
  struct range *upper = slab_take(&allocator->ranges);
  ring_clear(upper);
  ring_move(first, &range->edge, upper);
  upper->address = range->address + bytes;
  upper->bytes = range->bytes - bytes;
  upper->pool = range->pool;
  upper->below = range;
  upper->above = range->above;
  if (upper->above)
    upper->above->below = upper;
  range->above = upper;
  range->bytes = bytes;
  return upper;
}

static void range_join_above(struct allocator *allocator, struct range *range) {
  struct range *upper = range->above;
  ring_move(upper->edge.next, &upper->edge, range);
  range->bytes += upper->bytes;
  range->above = upper->above;
  if (range->above)
    range->above->below = range;
  slab_put(&allocator->ranges, upper);
}

static bool are_joined(const struct range *lower, const struct range *upper) {
  return lower && upper && lower->pool == upper->pool && !(lower->pool && lower->pool->is_unsplit);
}

/* Makes a range and its neighbours of the same owner one; returns it. */
static struct range *range_join_neighbours(struct allocator *allocator, struct range *range,
                                           int64_t *joined) {
  if (are_joined(range, range->above)) {
    range_join_above(allocator, range);
    ++*joined;
  }
  if (are_joined(range->below, range)) {
    range = range->below;
    range_join_above(allocator, range);
    ++*joined;
  }
  return range;
}

/* ---- reserving ------------------------------------------------------------------------------- */

/* Free bytes of the pool that touch an unreserved range from below. */
static size_t free_bytes_below(const struct range *range, const struct pool *pool) {
  if (!range->below || range->below->pool != pool || pool->is_unsplit)
    return 0;
  const struct block *last = range->below->edge.prev;
  return last->state == BLOCK_FREE ? last->shown.bytes : 0;
}

/* The unreserved range where the fewest bytes must be reserved: the lowest of these for a large
 * pool, the highest for a small one. NULL when no range is long enough. */
static struct range *find_room(struct allocator *allocator, const struct pool *pool, size_t bytes,
                               size_t *lacking) {
  struct range *best = NULL;
  *lacking = SIZE_MAX;
  for (struct range *range = &allocator->lowest; range; range = range->above) {
    if (range->pool)
      continue;
    bool small = pool->kind == OPENREG_POOL_SMALL;
    size_t needed = round_up_to_granules(small ? bytes : bytes - free_bytes_below(range, pool));
    if (needed <= range->bytes && (needed < *lacking || (small && needed == *lacking))) {
      best = range;
      *lacking = needed;
    }
  }
  return best;
}

/* Makes `bytes` of an unreserved range a range of its own: the first for a large pool, the last for
 * a small one. */
static struct range *carve(struct allocator *allocator, struct range *range,
                           const struct pool *pool, size_t bytes) {
  if (bytes == range->bytes)
    return range;
  if (pool->kind == OPENREG_POOL_SMALL)
    return range_cut(allocator, range, range->bytes - bytes, &range->edge);
  range_cut(allocator, range, bytes, &range->edge);
  return range;
}

openreg_status openreg_segment_reserve(struct allocator *allocator, struct pool *pool, size_t bytes,
                                       struct splits *change) {
  size_t lacking;
  struct range *room = find_room(allocator, pool, bytes, &lacking);
  int64_t reserved = allocator->holding[OPENREG_POOL_SMALL].reserved_bytes +
                     allocator->holding[OPENREG_POOL_LARGE].reserved_bytes;
  if (!room || (size_t)reserved + lacking > allocator->allowed_bytes)
    return OPENREG_OUT_OF_MEMORY;
  openreg_status status = openreg_ledger_take(allocator->device, lacking);
  if (status != OPENREG_OK)
    return status;

  struct range *segment = carve(allocator, room, pool, lacking);
  segment->pool = pool;
  if (memory_is_debugged())
    openreg_debug_reserved(segment->address, segment->bytes);
  struct block *whole = slab_take(&allocator->blocks);
  whole->shown.address = segment->address;
  whole->shown.bytes = segment->bytes;
  whole->state = BLOCK_PARKED;
  whole->pool = pool;
  whole->prev = whole->next = &segment->edge;
  segment->edge.prev = segment->edge.next = whole;
  if (memory_is_observed())
    openreg_observe_segment(OPENREG_MEMORY_RESERVED, allocator->device, pool, segment->address,
                            lacking);

  int64_t joined = 0;
  range_join_neighbours(allocator, segment, &joined);
  struct splits joining = pool_put(allocator, whole);
  change->pieces += joining.pieces;
  change->bytes += joining.bytes;
  allocator->holding[pool->kind].segments += 1 - joined;
  allocator->holding[pool->kind].reserved_bytes += (int64_t)lacking;
  pool->reserved_bytes += (int64_t)lacking;
  openreg_mempool_account(allocator, pool, (int64_t)lacking);
  openreg_stats_settle_segments(allocator, pool->kind);
  allocator->stats.device_allocs++;
  return OPENREG_OK;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Gives back the whole granules of a free block. Its ends were split and are. Returns the
 * unreserved range that they became part of. */
static struct range *release(struct allocator *allocator, struct range *segment,
                             struct block *block, struct span whole) {
  struct holding *holding = &allocator->holding[block->pool->kind];
  char *segment_end = segment->address + segment->bytes;
  struct range *middle = segment;
  holding->segments--;
  openreg_pool_remove(block);
  if (whole.to < block_end(block))
    openreg_pool_insert(
        openreg_block_cut(allocator, block, (size_t)(whole.to - block_address(block))));
  if (whole.to < segment_end) {
    range_cut(allocator, segment, (size_t)(whole.to - segment->address), block->next);
    holding->segments++;
  }
  if (whole.from > segment->address) {
    middle = range_cut(allocator, segment, (size_t)(whole.from - segment->address), &segment->edge);
    holding->segments++;
  }
  if (block_address(block) < whole.from) {
    block->shown.bytes = (size_t)(whole.from - block_address(block));
    openreg_pool_insert(block);
  } else {
    block->prev->next = block->next;
    block->next->prev = block->prev;
    slab_put(&allocator->blocks, block);
  }
  middle->pool = NULL;
  int64_t joined = 0;
  return range_join_neighbours(allocator, middle, &joined);
}

/* The first free block of a segment that has whole granules; NULL when there is none. */
static struct block *first_releasable(struct range *segment, struct span *whole) {
  for (struct block *block = segment->edge.next; block != &segment->edge; block = block->next) {
    if (block->state != BLOCK_FREE)
      continue;
    *whole = openreg_whole_granules(block_address(block), block_end(block));
    if (whole->from < whole->to)
      return block;
  }
  return NULL;
}

static bool is_released(const struct pool *pool, const uint64_t *only) {
  return only ? pool->mempool == *only : !openreg_mempool_is_kept(pool->mempool);
}

/* Releases, with everything that follows from it, and moves `range` on. */
static openreg_status release_pages(struct allocator *allocator, struct range **range,
                                    struct block *block, struct span whole) {
  struct pool *pool = block->pool;
  size_t bytes = (size_t)(whole.to - whole.from);
  /* One block for what is left above, two ranges for a segment cut in three. */
  if (!slab_ensure(&allocator->blocks, 1) || !slab_ensure(&allocator->ranges, 2))
    return OPENREG_SYSTEM;
  if (memory_is_debugged())
    openreg_debug_release(allocator, block, whole);
  openreg_status status = openreg_arena_release(whole.from, bytes);
  if (status != OPENREG_OK)
    return status;
  openreg_ledger_give(allocator->device, bytes);
  *range = release(allocator, *range, block, whole);
  allocator->holding[pool->kind].reserved_bytes -= (int64_t)bytes;
  pool->reserved_bytes -= (int64_t)bytes;
  openreg_mempool_account(allocator, pool, -(int64_t)bytes);
  allocator->stats.device_frees++;
  openreg_stats_settle_segments(allocator, pool->kind);
  if (memory_is_observed())
    openreg_observe_segment(OPENREG_MEMORY_RELEASED, allocator->device, pool, whole.from, bytes);
  return OPENREG_OK;
}

openreg_status openreg_segments_release(struct allocator *allocator, const uint64_t *only) {
  openreg_status result = OPENREG_OK;
  for (struct range *range = &allocator->lowest; range; range = range->above) {
    struct span whole;
    struct pool *pool = range->pool;
    struct block *block = pool && is_released(pool, only) ? first_releasable(range, &whole) : NULL;
    if (!block)
      continue;
    /* Work that was queued before the memory was freed may still write to it: none is left, and
     * none begins, while this thread is the stream. */
    openreg_status status = openreg_stream_try_begin_inline(allocator->device, pool->stream);
    if (status == OPENREG_OK) {
      status = release_pages(allocator, &range, block, whole);
      openreg_stream_end_inline(allocator->device, pool->stream);
    }
    if (status == OPENREG_NOT_READY)
      result = status;
    else if (status != OPENREG_OK)
      return status;
  }
  openreg_pools_retire(allocator);
  return result;
}
