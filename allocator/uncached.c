/* uncached.c: blocks while the cache is off (caching_allocator_enable(False)).
 *
 * Each is a segment of its own, which is had from the driver and goes back when it is freed. As
 * with CUDA they count in no statistic and are in no snapshot; what the ledger says has them. They
 * are of a pool that has no free blocks. What still may be used by work waits with those that wait
 * for their stream to be idle (events.c).
 */
#include "allocator/internal.h"

openreg_status openreg_uncached_allocate(struct allocator *allocator, struct request *request,
                                         struct block **block) {
  size_t bytes = request->bytes + zone_bytes();
  bytes = (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
  request->rounded_bytes = request->segment_bytes = bytes;
  request->pool = &allocator->pools[OPENREG_POOL_ALL];
  if (!slab_ensure(&allocator->blocks, 1) || !slab_ensure(&allocator->segments, 1))
    return OPENREG_SYSTEM;
  openreg_status status = openreg_ledger_take(allocator->device, bytes);
  if (status != OPENREG_OK)
    return status;
  struct segment *segment = openreg_segment_place(allocator, request, bytes);
  if (segment && openreg_starts_make(allocator, segment->address, bytes)) {
    *block = segment->first;
    if (memory_is_debugged())
      openreg_debug_reserved(segment->address, bytes);
    return OPENREG_OK;
  }
  if (segment)
    openreg_segment_remove(allocator, segment);
  openreg_ledger_give(allocator->device, bytes);
  return segment ? OPENREG_SYSTEM : OPENREG_OUT_OF_MEMORY;
}

openreg_status openreg_uncached_release(struct allocator *allocator, struct block *block) {
  struct segment *segment = block->segment;
  openreg_status status =
      openreg_segment_give_back(allocator, block, segment->address, segment->bytes);
  if (status == OPENREG_OK)
    openreg_segment_remove(allocator, segment);
  return status;
}

void openreg_uncached_free(struct allocator *allocator, struct block *block) {
  openreg_uses_drop(allocator, block);
  if (memory_is_debugged())
    openreg_debug_freed(allocator, block);
  block->state = BLOCK_AWAITING_STREAMS;
  block->events = 0;
  block->waiting = allocator->awaiting_idle;
  allocator->awaiting_idle = block;
  openreg_events_process(allocator);
  if (allocator->awaiting_idle && openreg_allocator_wait_idle(allocator) == OPENREG_OK)
    openreg_events_process(allocator);
}
