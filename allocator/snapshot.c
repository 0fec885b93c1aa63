/* snapshot.c: a snapshot of all segments of a device and their blocks. Each mapped part of an
 * expandable segment appears as a segment.
 *
 * The memory for the snapshot is allocated without the lock, for as many records as exist. If there
 * are more by then, it is tried again.
 */
#include "allocator/internal.h"

#include <stdlib.h>

struct room {
  size_t segments, blocks;
};

/* Returns an upper bound of the numbers of segments and blocks. */
static struct room capacity_needed(const struct allocator *allocator) {
  return (struct room){slab_taken(&allocator->segments) + slab_taken(&allocator->blocks) + 1,
                       slab_taken(&allocator->blocks) + 1};
}

static bool grow(openreg_memory_snapshot *snapshot, const struct room *room) {
  openreg_memory_free_snapshot(snapshot);
  snapshot->segments = calloc(room->segments, sizeof *snapshot->segments);
  snapshot->blocks = calloc(room->blocks, sizeof *snapshot->blocks);
  if (snapshot->segments && snapshot->blocks)
    return true;
  openreg_memory_free_snapshot(snapshot);
  return false;
}

static void add_block(openreg_memory_snapshot *snapshot, openreg_segment_info *segment,
                      const struct block *block) {
  openreg_block_info *info = &snapshot->blocks[snapshot->block_count++];
  segment->block_count++;
  info->address = (uintptr_t)block->base.address;
  info->bytes = block->base.bytes;
  info->state = OPENREG_BLOCK_FREE;
  info->requested_bytes = 0;
  if (block->state == BLOCK_FREE)
    return;
  bool waits = block->state == BLOCK_AWAITING_STREAMS;
  info->state = waits ? OPENREG_BLOCK_AWAITING_FREE : OPENREG_BLOCK_ALLOCATED;
  info->requested_bytes = block->base.requested_bytes;
  segment->allocated_bytes += waits ? 0 : block->base.bytes;
  segment->active_bytes += block->base.bytes;
  segment->requested_bytes += block->base.requested_bytes;
}

/* Adds a segment that begins with the block. */
static openreg_segment_info *add_segment(openreg_memory_snapshot *snapshot,
                                         const struct block *block) {
  openreg_segment_info *segment = &snapshot->segments[snapshot->segment_count++];
  *segment = (openreg_segment_info){
      .address = (uintptr_t)block->base.address,
      .stream = block->base.stream,
      .kind = block->pool->kind,
      .is_expandable = block_is_expandable(block),
      .mempool = pool_mempool(block->pool),
      .first_block = snapshot->block_count,
  };
  return segment;
}

static void add_segments(openreg_memory_snapshot *snapshot, const struct segment *from) {
  openreg_segment_info *segment = NULL;
  if (block_is_uncached(from->first))
    return;
  for (const struct block *block = from->first; block; block = block->next) {
    if (block->state == BLOCK_UNMAPPED) {
      segment = NULL;
      continue;
    }
    if (!segment)
      segment = add_segment(snapshot, block);
    segment->bytes += block->base.bytes;
    add_block(snapshot, segment, block);
  }
}

/* Fills the snapshot. Returns false if it is too small. */
static bool draw(struct allocator *allocator, const struct room *room,
                 openreg_memory_snapshot *snapshot) {
  struct room needed = capacity_needed(allocator);
  if (needed.segments > room->segments || needed.blocks > room->blocks)
    return false;
  for (const struct segment *segment = NULL; (segment = segment_next(allocator, segment));)
    add_segments(snapshot, segment);
  return true;
}

openreg_status openreg_memory_take_snapshot(int device, openreg_memory_snapshot *snapshot) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!snapshot)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_take_snapshot: snapshot is NULL");
  *snapshot = (openreg_memory_snapshot){0};
  struct room room = {0};
  while (allocator) {
    allocator_lock(allocator);
    bool drawn = draw(allocator, &room, snapshot);
    struct room needed = capacity_needed(allocator);
    allocator_unlock(allocator);
    if (drawn)
      break;
    room = (struct room){needed.segments + needed.segments / 8, needed.blocks + needed.blocks / 8};
    if (!grow(snapshot, &room))
      return openreg_fail(
          OPENREG_OUT_OF_MEMORY,
          "openreg: out of host memory for a snapshot of %zu segments and %zu blocks",
          room.segments, room.blocks);
  }
  return OPENREG_OK;
}

void openreg_memory_free_snapshot(openreg_memory_snapshot *snapshot) {
  if (!snapshot)
    return;
  free(snapshot->segments);
  free(snapshot->blocks);
  *snapshot = (openreg_memory_snapshot){0};
}
