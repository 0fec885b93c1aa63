/* custom_allocator.c: device memory that functions of the program provide.
 *
 * A memory pool with a custom allocator takes its segments from there and otherwise works like any
 * other pool. A custom allocator of the process provides each block, and nothing is cached
 * (uncached.c). In both cases the memory lies inside a segment or block that the program already
 * holds. So these segments have a list of their own, because segments of the main list do not
 * overlap.
 *
 * Custom allocators belong to the program: they may allocate, wait, or be written in Python. So the
 * allocator calls them without holding a lock. It collects memory that goes back to them until it
 * releases its lock anyway.
 */
#include "allocator/internal.h"

static openreg_custom_allocator process_allocator;

openreg_custom_allocator openreg_custom_allocator_of_process(void) {
  return process_allocator;
}

openreg_status openreg_custom_allocator_require(const openreg_custom_allocator *custom) {
  if (!custom || (custom->allocate && custom->free))
    return OPENREG_OK;
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg: a custom allocator has no function that %s: expected both "
                      "`allocate` and `free`",
                      custom->allocate ? "frees" : "allocates");
}

/* A device reads this when it is first used. */
openreg_status openreg_set_custom_allocator(const openreg_custom_allocator *custom) {
  openreg_status status = openreg_custom_allocator_require(custom);
  if (status != OPENREG_OK)
    return status;
  if (openreg_in_bad_fork())
    return openreg_require_no_bad_fork();
  if (openreg_is_initialized())
    return openreg_fail(
        OPENREG_NOT_PERMITTED,
        "openreg: the allocator cannot be changed after it was initialized: change it "
        "before the first use of a device");
  process_allocator = custom ? *custom : (openreg_custom_allocator){0};
  return OPENREG_OK;
}

/* ---- reserving ------------------------------------------------------------------------------- */

/* Whether the program holds this memory, and no allocated block starts there already. */
static bool is_program_memory(const struct allocator *allocator, const char *address,
                              size_t bytes) {
  const struct segment *segment = allocator->lowest;
  while (segment && address >= segment->address + segment->bytes)
    segment = segment->above;
  const struct block *block = segment ? segment->first : NULL;
  while (block && address >= block_end(block))
    block = block->next;
  return block && address >= block_address(block) &&
         bytes <= (size_t)(block_end(block) - address) && block->state == BLOCK_ALLOCATED &&
         (size_t)(address - block_address(block)) % UNIT_BYTES == 0 &&
         !*address_map_slot(allocator, address);
}

static openreg_status add(struct allocator *allocator, const struct request *request,
                          const openreg_custom_allocator *custom, char *address, size_t bytes,
                          struct segment **segment) {
  if (!is_program_memory(allocator, address, bytes))
    return openreg_fail(
        OPENREG_INVALID_ADDRESS,
        "openreg: a custom allocator returned %p for %zu bytes of device %d: expected "
        "memory of that device that the program holds and in which no block starts "
        "there yet, or NULL",
        (void *)address, bytes, allocator->device);
  /* The caller ensured these records, but other threads may have used them meanwhile. */
  if (!slab_ensure(&allocator->blocks, 3) || !slab_ensure(&allocator->segments, 1))
    return OPENREG_SYSTEM;
  *segment = openreg_segment_add(allocator, request, address, bytes, custom);
  return OPENREG_OK;
}

openreg_status openreg_custom_allocator_reserve(struct allocator *allocator,
                                                const struct request *request,
                                                const openreg_custom_allocator *custom,
                                                size_t bytes, struct segment **segment) {
  const openreg_custom_allocator asked = *custom;
  allocator_unlock(allocator);
  char *address = asked.allocate(asked.context, bytes, allocator->device, request->stream);
  allocator_lock(allocator);
  if (!address)
    return OPENREG_OUT_OF_MEMORY;
  openreg_status status = add(allocator, request, &asked, address, bytes, segment);
  if (status == OPENREG_SYSTEM) {
    allocator_unlock(allocator);
    asked.free(asked.context, address, bytes, allocator->device, request->stream);
    allocator_lock(allocator);
  }
  return status;
}

/* ---- releasing ------------------------------------------------------------------------------- */

void openreg_custom_allocator_release(struct allocator *allocator) {
  struct segment *segments_to_return = allocator->segments_to_return;
  allocator->segments_to_return = NULL;
  allocator_unlock(allocator);
  for (struct segment *segment = segments_to_return; segment; segment = segment->above) {
    const openreg_custom_allocator *custom = &segment->custom;
    custom->free(custom->context, segment->address, segment->bytes, allocator->device,
                 segment->stream);
  }
  allocator_lock(allocator);
  for (struct segment *segment = segments_to_return, *next; segment; segment = next) {
    next = segment->above;
    slab_put(&allocator->segments, segment);
  }
}
