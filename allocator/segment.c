/* segment.c: memory from the driver: segments of the arena, and what they hold of the ledger.
 *
 * As cudaMalloc does, a segment takes memory, which runs out, and addresses, which do not: it lies
 * at the lowest addresses of the arena where it fits. Segments are never joined, even if they
 * touch.
 *
 *     segment.address + segment.bytes <= segment.above.address
 *     all segments up to below_gap lie without a gap, from the arena's base on
 */
#include "allocator/stats.h"

/* ---- addresses ------------------------------------------------------------------------------- */

static char *end_of(const struct allocator *allocator, const struct segment *segment) {
  return segment ? segment->address + segment->bytes : allocator->base;
}

static struct segment *above(const struct allocator *allocator, const struct segment *segment) {
  return segment ? segment->above : allocator->lowest;
}

/* Moves below_gap on over those that lie without one. */
static void skip_neighbours(struct allocator *allocator) {
  struct segment *segment = allocator->below_gap, *next;
  while ((next = above(allocator, segment)) && next->address == end_of(allocator, segment))
    segment = next;
  allocator->below_gap = segment;
}

/* The segment behind which there is room, or `*found` false. */
static struct segment *find_room(const struct allocator *allocator, size_t bytes, bool *found) {
  const char *arena_end = allocator->base + allocator->arena_bytes;
  struct segment *below = allocator->below_gap;
  for (;;) {
    const struct segment *next = above(allocator, below);
    const char *end = next ? next->address : arena_end;
    *found = (size_t)(end - end_of(allocator, below)) >= bytes;
    if (*found || !next)
      return below;
    below = above(allocator, below);
  }
}

/* A segment that is one block, in no list. */
static struct segment *segment_make(struct allocator *allocator, const struct request *request,
                                    char *address, size_t bytes) {
  struct segment *segment = slab_take(&allocator->segments);
  struct block *block = block_take_record(allocator);
  *block = (struct block){.shown = {.address = address,
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
  skip_neighbours(allocator);
  return segment;
}

struct segment *openreg_segment_add(struct allocator *allocator, const struct request *request,
                                    char *address, size_t bytes,
                                    const openreg_memory_source *source) {
  struct segment *segment = segment_make(allocator, request, address, bytes);
  segment->source = *source;
  segment->below = allocator->last_sourced;
  *(segment->below ? &segment->below->above : &allocator->first_sourced) = segment;
  allocator->last_sourced = segment;
  return segment;
}

/* Takes it out of its list. */
static void unlink_segment(struct allocator *allocator, struct segment *segment) {
  bool is_sourced = segment_is_sourced(segment);
  if (!is_sourced && allocator->below_gap && allocator->below_gap->address >= segment->address)
    allocator->below_gap = segment->below;
  struct segment **first = is_sourced ? &allocator->first_sourced : &allocator->lowest;
  *(segment->below ? &segment->below->above : first) = segment->above;
  if (segment->above)
    segment->above->below = segment->below;
  else if (is_sourced)
    allocator->last_sourced = segment->below;
}

void openreg_segment_remove(struct allocator *allocator, struct segment *segment) {
  unlink_segment(allocator, segment);
  if (segment->pool->owner)
    segment->pool->owner->segments--;
  block_put_record(allocator, segment->first);
  if (segment_is_sourced(segment)) {
    segment->above = allocator->returned;
    allocator->returned = segment;
    return;
  }
  slab_put(&allocator->segments, segment);
  skip_neighbours(allocator);
}

/* How many granules in a row have none, from `first` to `last` at most. */
static size_t granules_without(const struct allocator *allocator, size_t first, size_t last) {
  size_t granule = first;
  while (granule <= last && !allocator->starts[granule])
    granule++;
  return granule - first;
}

bool openreg_starts_make(struct allocator *allocator, const char *address, size_t bytes) {
  size_t first = (size_t)(address - allocator->base) / GRANULE_BYTES;
  size_t last = ((size_t)(address - allocator->base) + bytes - 1) / GRANULE_BYTES;
  for (size_t granule = first; granule <= last; granule++) {
    size_t count = granules_without(allocator, granule, last);
    struct starts *made = count > 0 ? openreg_pages_map(count * sizeof *made) : NULL;
    if (count > 0 && !made)
      return false;
    for (size_t i = 0; i < count; i++)
      __atomic_store_n(&allocator->starts[granule + i], &made[i], __ATOMIC_RELEASE);
    granule += count;
  }
  return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Whether a request is refused without asking the device (throw_on_cudamalloc_oom). */
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
    status = openreg_ledger_take(allocator->device, bytes);
  if (status != OPENREG_OK)
    return status;
  *segment = openreg_segment_place(allocator, request, bytes);
  if (*segment && openreg_starts_make(allocator, (*segment)->address, bytes))
    return OPENREG_OK;
  openreg_ledger_give(allocator->device, bytes);
  if (!*segment)
    return OPENREG_OUT_OF_MEMORY;
  openreg_segment_remove(allocator, *segment);
  return OPENREG_SYSTEM;
}

openreg_status openreg_segment_reserve(struct allocator *allocator, struct request *request,
                                       struct block **block) {
  openreg_memory_stats *stats = &allocator->stats;
  size_t bytes = request->segment_bytes;
  /* For the segment, for what stays unmapped of it, and for what will be split off; the last also
   * when this fails and a private pool serves the request. */
  if (!slab_ensure(&allocator->blocks, 3) || !slab_ensure(&allocator->segments, 1) ||
      !openreg_mempool_account_open(allocator, request->mempool))
    return OPENREG_SYSTEM;
  if (allocator->allowed_bytes != SIZE_MAX &&
      (size_t)stats->reserved_bytes[OPENREG_POOL_ALL].current + bytes > allocator->allowed_bytes)
    return OPENREG_OUT_OF_MEMORY;
  request->is_rejected = is_rejected(allocator, bytes);
  if (request->is_rejected)
    return OPENREG_OUT_OF_MEMORY;
  const struct private_pool *owner = request->pool->owner;
  bool is_sourced = owner && owner->source.allocate;
  if (request->is_expandable && is_sourced)
    return openreg_fail(
        OPENREG_NOT_PERMITTED,
        "openreg: a memory pool with an allocator of its own cannot have expandable "
        "segments: expected expandable_segments:False while it is used");
  if (request->is_expandable)
    return openreg_expandable_reserve(allocator, request, block);
  struct segment *segment;
  openreg_status status =
      is_sourced ? openreg_source_take(allocator, request, &owner->source, bytes, &segment)
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
  openreg_mempool_account(allocator, request->pool, (int64_t)bytes);
  if (memory_is_debugged())
    openreg_debug_reserved(segment->address, bytes);
  if (memory_is_observed())
    openreg_observe_segment(OPENREG_MEMORY_SEGMENT_ALLOCATED, allocator, segment, segment->address,
                            bytes);
  return OPENREG_OK;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* cudaFree waits for all work of the device, which may show in events that are done then. */
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
  if (segment_is_sourced(block->segment)) {
    if (memory_is_debugged())
      openreg_debug_release(allocator, block, address, bytes);
    return OPENREG_OK;
  }
  /* Work that was queued before the memory was freed may still use it: none is left, and none
   * begins, while this thread is the stream. */
  openreg_status status = openreg_stream_try_begin_inline(allocator->device, block->shown.stream);
  if (status != OPENREG_OK)
    return status;
  if (memory_is_debugged())
    openreg_debug_release(allocator, block, address, bytes);
  status = openreg_arena_release(address, bytes);
  openreg_stream_end_inline(allocator->device, block->shown.stream);
  if (status == OPENREG_OK)
    openreg_ledger_give(allocator->device, bytes);
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
  openreg_mempool_account(allocator, pool, -(int64_t)bytes);
  pool_remove(block);
  openreg_segment_remove(allocator, segment);
  return OPENREG_OK;
}
