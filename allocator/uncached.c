/* uncached.c: blocks of which no memory is kept: while the cache is off
 * (caching_allocator_enable(False)), where a source of the process gives each of them, and those of
 * openreg_device_malloc.
 *
 * Each is a segment of its own, which goes back when it is freed. As with CUDA they count in no
 * statistic and are in no snapshot; what the ledger says has them. They are of a pool that has no
 * free blocks. What still may be used by work waits with those that wait for their stream to be
 * idle (events.c).
 */
#include "allocator/internal.h"

static openreg_status take(struct allocator *allocator, struct request *request,
                           const openreg_memory_source *source, struct block **block) {
  size_t bytes =
      round_up(request->bytes + zone_bytes(), source->allocate ? UNIT_BYTES : GRANULE_BYTES);
  request->rounded_bytes = request->segment_bytes = bytes;
  request->pool = &allocator->pools[OPENREG_POOL_ALL];
  if (!slab_ensure(&allocator->blocks, 1) || !slab_ensure(&allocator->segments, 1))
    return OPENREG_SYSTEM;
  struct segment *segment;
  openreg_status status = source->allocate
                              ? openreg_source_take(allocator, request, source, bytes, &segment)
                              : openreg_segment_take(allocator, request, bytes, &segment);
  if (status != OPENREG_OK)
    return status;
  *block = segment->first;
  if (memory_is_debugged())
    openreg_debug_reserved(segment->address, bytes);
  return OPENREG_OK;
}

openreg_status openreg_uncached_allocate(struct allocator *allocator, struct request *request,
                                         struct block **block) {
  return take(allocator, request, &allocator->source, block);
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

/* ---- openreg_device_malloc ------------------------------------------------------------------- */

/* It is the program's, but nobody finds it by its address: what it holds may begin there. */
static void hand_out_raw(struct allocator *allocator, struct block *block, size_t bytes) {
  block->shown.requested_bytes = bytes;
  block->state = BLOCK_ALLOCATED;
  block->segment->is_raw = true;
  if (memory_is_debugged())
    openreg_debug_handed_out(allocator, block, NULL);
}

openreg_status openreg_device_malloc(int device, size_t bytes, void **address) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_open(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!address || bytes == 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_device_malloc: %s",
                        address ? "0 bytes: expected more" : "address is NULL");
  struct request request = {.bytes = bytes, .is_rejected = bytes >= MOST_REQUESTED_BYTES};
  const openreg_memory_source device_itself = {0};
  struct block *block;
  allocator_lock(allocator);
  status = request.is_rejected ? OPENREG_OUT_OF_MEMORY
                               : take(allocator, &request, &device_itself, &block);
  if (status == OPENREG_OK) {
    hand_out_raw(allocator, block, bytes);
    *address = block->shown.address;
  }
  allocator_unlock(allocator);
  if (status == OPENREG_OUT_OF_MEMORY)
    return openreg_fail(status, "openreg: device %d has no %zu bytes left", device, bytes);
  return status;
}

static struct block *find_raw(const struct allocator *allocator, const void *address) {
  const struct segment *segment = allocator ? allocator->lowest : NULL;
  while (segment && (segment->address != address || !segment->is_raw))
    segment = segment->above;
  return segment && segment->first->state == BLOCK_ALLOCATED ? segment->first : NULL;
}

openreg_status openreg_device_free(void *address) {
  if (!address)
    return OPENREG_OK;
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK, "openreg: memory of a device stays with the process that "
                                          "allocated it: it cannot be freed after fork");
  struct allocator *allocator = openreg_allocator_ready(openreg_arena_device_of(address));
  if (allocator)
    allocator_lock(allocator);
  struct block *block = find_raw(allocator, address);
  if (block)
    openreg_uncached_free(allocator, block);
  if (allocator)
    allocator_unlock(allocator);
  return block ? OPENREG_OK
               : openreg_fail(OPENREG_INVALID_ARGUMENT,
                              "openreg: no memory of openreg_device_malloc begins at %p", address);
}
