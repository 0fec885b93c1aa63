/* segment.c: segments of the arena, and the bytes that they take from the ledger.
 *
 * As with cudaMalloc, a segment needs memory, which can run out, and addresses, which do not. It
 * lies at the lowest addresses of the arena where it fits. Segments never merge, even if they
 * touch.
 *
 *     segment.address + segment.bytes <= segment.above.address
 *     from the arena's base to the end of last_contiguous there is no gap between segments
 */
#include "allocator/stats.h"

/* ---- addresses ------------------------------------------------------------------------------- */

static char *end_of(const struct allocator *allocator, const struct segment *segment) {
  return segment ? segment->address + segment->bytes : allocator->base;
}

static struct segment *above(const struct allocator *allocator, const struct segment *segment) {
  return segment ? segment->above : allocator->lowest;
}

/* Advances last_contiguous to the last segment before a gap. */
static void extend_contiguous(struct allocator *allocator) {
  struct segment *segment = allocator->last_contiguous, *next;
  while ((next = above(allocator, segment)) && next->address == end_of(allocator, segment))
    segment = next;
  allocator->last_contiguous = segment;
}

/* Returns the segment behind which there is room; NULL is the arena's base. Sets `*found`. */
static struct segment *find_room(const struct allocator *allocator, size_t bytes, bool *found) {
  const char *arena_end = allocator->base + allocator->arena_bytes;
  struct segment *below = allocator->last_contiguous;
  for (;;) {
    const struct segment *next = above(allocator, below);
    const char *end = next ? next->address : arena_end;
    *found = (size_t)(end - end_of(allocator, below)) >= bytes;
    if (*found || !next)
      return below;
    below = above(allocator, below);
  }
}

/* Creates a segment that is one block. It is in no list yet. */
static struct segment *segment_make(struct allocator *allocator, const struct request *request,
                                    char *address, size_t bytes) {
  struct segment *segment = slab_take(&allocator->segments);
  struct block *block = block_take_record(allocator);
  *block = (struct block){.base = {.address = address,
                                   .bytes = bytes,
                                   .device = allocator->device,
                                   .stream = request->stream},
                          .state = BLOCK_UNMAPPED,
                          .segment = segment,
                          .pool = request->pool};
  *segment = (struct segment){.address = address,
                              .bytes = bytes,
                              .first = block,
                              .pool = request->pool,
                              .number = allocator->segments_made++,
                              .stream = request->stream};
  if (request->pool->owner)
    request->pool->owner->segments++;
  return segment;
}

struct segment *openreg_segment_place(struct allocator *allocator, const struct request *request,
                                      size_t bytes) {
  bool found;
  struct segment *below = find_room(allocator, bytes, &found);
  if (!found)
    return NULL;
  struct segment *segment = segment_make(allocator, request, end_of(allocator, below), bytes);
  segment->below = below;
  segment->above = above(allocator, below);
  if (segment->above)
    segment->above->below = segment;
  *(below ? &below->above : &allocator->lowest) = segment;
  extend_contiguous(allocator);
  return segment;
}

struct segment *openreg_segment_add(struct allocator *allocator, const struct request *request,
                                    char *address, size_t bytes,
                                    const openreg_custom_allocator *custom) {
  struct segment *segment = segment_make(allocator, request, address, bytes);
  segment->custom = *custom;
  segment->below = allocator->last_custom;
  *(segment->below ? &segment->below->above : &allocator->first_custom) = segment;
  allocator->last_custom = segment;
  return segment;
}

/* Removes a segment from its list. */
static void unlink_segment(struct allocator *allocator, struct segment *segment) {
  bool is_custom = segment_is_custom(segment);
  if (!is_custom && allocator->last_contiguous &&
      allocator->last_contiguous->address >= segment->address)
    allocator->last_contiguous = segment->below;
  struct segment **first = is_custom ? &allocator->first_custom : &allocator->lowest;
  *(segment->below ? &segment->below->above : first) = segment->above;
  if (segment->above)
    segment->above->below = segment->below;
  else if (is_custom)
    allocator->last_custom = segment->below;
}

void openreg_segment_remove(struct allocator *allocator, struct segment *segment) {
  unlink_segment(allocator, segment);
  if (segment->pool->owner)
    segment->pool->owner->segments--;
  block_put_record(allocator, segment->first);
  if (segment_is_custom(segment)) {
    segment->above = allocator->segments_to_return;
    allocator->segments_to_return = segment;
    return;
  }
  slab_put(&allocator->segments, segment);
  extend_contiguous(allocator);
}

/* Counts the granules without an address map from `first` on, up to `last`. */
static size_t count_unmapped_granules(const struct allocator *allocator, size_t first,
                                      size_t last) {
  size_t granule = first;
  while (granule <= last && !allocator->address_map[granule])
    granule++;
  return granule - first;
}

bool openreg_address_map_cover(struct allocator *allocator, const char *address, size_t bytes) {
  size_t first = (size_t)(address - allocator->base) / GRANULE_BYTES;
  size_t last = ((size_t)(address - allocator->base) + bytes - 1) / GRANULE_BYTES;
  for (size_t granule = first; granule <= last; granule++) {
    size_t count = count_unmapped_granules(allocator, granule, last);
    struct address_map *made = count > 0 ? openreg_pages_map(count * sizeof *made) : NULL;
    if (count > 0 && !made)
      return false;
    for (size_t i = 0; i < count; i++)
      __atomic_store_n(&allocator->address_map[granule + i], &made[i], __ATOMIC_RELEASE);
    granule += count;
  }
  return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Whether a request is rejected without asking the device (throw_on_cudamalloc_oom). */
static bool is_rejected(const struct allocator *allocator, size_t bytes) {
  const openreg_memory_settings *settings = &allocator->settings;
  const double reserved = (double)allocator->stats.reserved_bytes[OPENREG_POOL_ALL].current;
  return settings->throws_on_oom &&
         reserved + (double)bytes > settings->memory_fraction * (double)allocator->capacity;
}

openreg_status openreg_segment_take(struct allocator *allocator, const struct request *request,
                                    size_t bytes, struct segment **segment) {
  openreg_status status = OPENREG_OK;
  if (openreg_captures_exist() && !openreg_stream_is_capturing(allocator->device, request->stream))
    status = openreg_capture_refuse_unsafe("memory from the device for another stream");
  if (status == OPENREG_OK)
    status = openreg_ledger_reserve(allocator->device, bytes);
  if (status != OPENREG_OK)
    return status;
  *segment = openreg_segment_place(allocator, request, bytes);
  if (*segment && openreg_address_map_cover(allocator, (*segment)->address, bytes))
    return OPENREG_OK;
  openreg_ledger_release(allocator->device, bytes);
  if (!*segment)
    return OPENREG_OUT_OF_MEMORY;
  openreg_segment_remove(allocator, *segment);
  return OPENREG_SYSTEM;
}

openreg_status openreg_segment_reserve(struct allocator *allocator, struct request *request,
                                       struct block **block) {
  openreg_memory_stats *stats = &allocator->stats;
  size_t bytes = request->segment_bytes;
  /* Records for the segment, for the part that stays unmapped, and for the part that will be split
   * off. The last one is also needed if this fails and a private pool serves the request. */
  if (!slab_ensure(&allocator->blocks, 3) || !slab_ensure(&allocator->segments, 1) ||
      !openreg_mempool_ensure_stats(allocator, request->mempool))
    return OPENREG_SYSTEM;
  if (allocator->allowed_bytes != SIZE_MAX &&
      (size_t)stats->reserved_bytes[OPENREG_POOL_ALL].current + bytes > allocator->allowed_bytes)
    return OPENREG_OUT_OF_MEMORY;
  request->is_rejected = is_rejected(allocator, bytes);
  if (request->is_rejected)
    return OPENREG_OUT_OF_MEMORY;
  const struct private_pool *owner = request->pool->owner;
  bool is_custom = owner && owner->custom.allocate;
  if (request->is_expandable)
    return openreg_expandable_reserve(allocator, request, block);
  struct segment *segment;
  openreg_status status =
      is_custom
          ? openreg_custom_allocator_reserve(allocator, request, &owner->custom, bytes, &segment)
          : openreg_segment_take(allocator, request, bytes, &segment);
  if (status != OPENREG_OK)
    return status;
  *block = segment->first;
  int kind = request->pool->kind;
  stats_increase(stats->segment, kind, 1);
  stats_increase(stats->reserved_bytes, kind, bytes);
  if (bytes >= allocator->settings.max_split_bytes)
    stat_increase(&stats->oversize_segments, 1);
  stats->device_allocs++;
  openreg_mempool_count_reserved(allocator, request->pool, (int64_t)bytes);
  if (memory_debug_is_on())
    openreg_debug_on_reserve(segment->address, bytes);
  if (memory_is_observed())
    openreg_observe_segment(OPENREG_MEMORY_SEGMENT_ALLOCATED, allocator, segment, segment->address,
                            bytes);
  return OPENREG_OK;
}

/* ---- releasing ------------------------------------------------------------------------------- */

/* cudaFree waits for all work of the device. Afterwards events may be done that were not before. */
static bool is_idle(const struct allocator *allocator) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    if (!openreg_stream_is_idle(allocator->device, stream))
      return false;
  return true;
}

openreg_status openreg_segment_give_back(struct allocator *allocator, const struct block *block,
                                         char *address, size_t bytes) {
  if (!allocator->has_waited && !is_idle(allocator))
    return OPENREG_NOT_READY;
  if (segment_is_custom(block->segment)) {
    if (memory_debug_is_on())
      openreg_debug_on_release(allocator, block, address, bytes);
    return OPENREG_OK;
  }
  /* Work that was queued before the memory was freed may still use it. While this thread runs
   * inline on the stream, there is no such work, and none begins. */
  openreg_status status = openreg_stream_try_begin_inline(allocator->device, block->base.stream);
  if (status != OPENREG_OK)
    return status;
  if (memory_debug_is_on())
    openreg_debug_on_release(allocator, block, address, bytes);
  status = openreg_arena_release(address, bytes);
  openreg_stream_end_inline(allocator->device, block->base.stream);
  if (status == OPENREG_OK)
    openreg_ledger_release(allocator->device, bytes);
  return status;
}

openreg_status openreg_segment_release(struct allocator *allocator, struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  struct segment *segment = block->segment;
  struct pool *pool = block->pool;
  size_t bytes = segment->bytes;
  assert(!block_is_split(block) && segment->page_bytes == 0);
  openreg_status status = openreg_segment_give_back(allocator, block, segment->address, bytes);
  if (status != OPENREG_OK)
    return status;
  stats->device_frees++;
  if (memory_is_observed())
    openreg_observe_segment(OPENREG_MEMORY_SEGMENT_FREED, allocator, segment, segment->address,
                            bytes);
  stats_decrease(stats->segment, pool->kind, 1);
  stats_decrease(stats->reserved_bytes, pool->kind, bytes);
  if (bytes >= allocator->settings.max_split_bytes)
    stat_decrease(&stats->oversize_segments, 1);
  openreg_mempool_count_reserved(allocator, pool, -(int64_t)bytes);
  pool_remove(block);
  openreg_segment_remove(allocator, segment);
  return OPENREG_OK;
}
