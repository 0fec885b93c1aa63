/* uncached.c: blocks whose memory is not cached. There are three kinds: blocks while the cache is
 * off (caching_allocator_enable(False)), blocks of a custom allocator of the process, and memory of
 * openreg_device_malloc.
 *
 * Each is a segment of its own that is released when it is freed. As on CUDA they are in no
 * statistic and no snapshot; the ledger counts them. They belong to a pool without free blocks. If
 * work may still use one, it waits with the blocks that wait for their stream to be idle
 * (events.c).
 */
#include "allocator/internal.h"

static openreg_status take(struct allocator *allocator, struct request *request,
                           const openreg_custom_allocator *custom, struct block **block) {
  size_t bytes =
      round_up(request->bytes + red_zone_bytes(), custom->allocate ? UNIT_BYTES : GRANULE_BYTES);
  request->rounded_bytes = request->segment_bytes = bytes;
  request->pool = &allocator->pools[OPENREG_POOL_ALL];
  if (!slab_ensure(&allocator->blocks, 1) || !slab_ensure(&allocator->segments, 1))
    return OPENREG_SYSTEM;
  struct segment *segment;
  openreg_status status =
      custom->allocate
          ? openreg_custom_allocator_reserve(allocator, request, custom, bytes, &segment)
          : openreg_segment_take(allocator, request, bytes, &segment);
  if (status != OPENREG_OK)
    return status;
  *block = segment->first;
  if (memory_debug_is_on())
    openreg_debug_on_reserve(segment->address, bytes);
  return OPENREG_OK;
}

openreg_status openreg_uncached_allocate(struct allocator *allocator, struct request *request,
                                         struct block **block) {
  return take(allocator, request, &allocator->custom, block);
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
  openreg_stream_uses_drop(allocator, block);
  if (memory_debug_is_on())
    openreg_debug_on_free(allocator, block);
  block->state = BLOCK_AWAITING_STREAMS;
  block->events = 0;
  block->waiting = allocator->awaiting_idle;
  allocator->awaiting_idle = block;
  openreg_events_process(allocator);
  if (allocator->awaiting_idle && openreg_allocator_wait_idle(allocator) == OPENREG_OK)
    openreg_events_process(allocator);
}

/* ---- openreg_device_malloc ------------------------------------------------------------------- */

/* Gives a block to the program that openreg_block_find does not return: a block of a custom
 * allocator may start at the same address. */
static void mark_raw_allocated(struct allocator *allocator, struct block *block, size_t bytes) {
  block->base.requested_bytes = bytes;
  block->state = BLOCK_ALLOCATED;
  block->segment->is_raw = true;
  if (memory_debug_is_on())
    openreg_debug_on_allocate(allocator, block, NULL);
}

openreg_status openreg_device_malloc(int device, size_t bytes, void **address) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_open(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!address || bytes == 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_device_malloc: %s",
                        address ? "bytes is 0: expected 1 or more" : "address is NULL");
  struct request request = {.bytes = bytes, .is_rejected = bytes >= MOST_REQUESTED_BYTES};
  const openreg_custom_allocator device_itself = {0};
  struct block *block;
  allocator_lock(allocator);
  status = request.is_rejected ? OPENREG_OUT_OF_MEMORY
                               : take(allocator, &request, &device_itself, &block);
  if (status == OPENREG_OK) {
    mark_raw_allocated(allocator, block, bytes);
    *address = block->base.address;
  }
  allocator_unlock(allocator);
  if (status == OPENREG_OUT_OF_MEMORY)
    return openreg_fail(status, "openreg: device %d has less than %zu bytes left", device, bytes);
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
    return openreg_require_no_bad_fork();
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
                              "openreg: no memory of openreg_device_malloc starts at %p", address);
}
