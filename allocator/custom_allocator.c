/* source.c: memory that is had from functions of the program, in the place of the device.
 *
 * A memory pool that was made with a source has its segments from there, and goes on as any other.
 * A source of the process gives each block, and nothing is kept (uncached.c). Either lies in memory
 * that the program has of the device, in a segment or block of its own: so such segments are in a
 * list of their own, for those of the other list do not overlap.
 *
 * Sources are the program's: they may allocate, wait, or be Python. So no lock is held while they
 * are asked; and what goes back to them is put aside until the lock is given up anyway.
 */
#include "allocator/internal.h"

static openreg_memory_source source_of_process;

openreg_memory_source openreg_source_of_process(void) {
  return source_of_process;
}

openreg_status openreg_source_require(const openreg_memory_source *source) {
  if (!source || (source->allocate && source->free))
    return OPENREG_OK;
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg: a source of memory without a function that %s: expected both, "
                      "`allocate` and `free`",
                      source->allocate ? "frees" : "allocates");
}

/* Read when a device is first used, which is later. */
openreg_status openreg_memory_set_source(const openreg_memory_source *source) {
  openreg_status status = openreg_source_require(source);
  if (status != OPENREG_OK)
    return status;
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK, "openreg: the devices of a process forked after they "
                                          "were initialized cannot be used: start it with spawn");
  if (openreg_is_initialized())
    return openreg_fail(
        OPENREG_NOT_PERMITTED,
        "openreg: the allocator cannot be changed after it was initialized: expected "
        "that before the first use of a device");
  source_of_process = source ? *source : (openreg_memory_source){0};
  return OPENREG_OK;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Whether the program has this memory, and nothing was allocated in it that begins there. */
static bool is_the_programs(const struct allocator *allocator, const char *address, size_t bytes) {
  const struct segment *segment = allocator->lowest;
  while (segment && address >= segment->address + segment->bytes)
    segment = segment->above;
  const struct block *block = segment ? segment->first : NULL;
  while (block && address >= block_end(block))
    block = block->next;
  return block && address >= block_address(block) &&
         bytes <= (size_t)(block_end(block) - address) && block->state == BLOCK_ALLOCATED &&
         (size_t)(address - block_address(block)) % UNIT_BYTES == 0 &&
         !*allocator_start(allocator, address);
}

static openreg_status add(struct allocator *allocator, const struct request *request,
                          const openreg_memory_source *source, char *address, size_t bytes,
                          struct segment **segment) {
  if (!is_the_programs(allocator, address, bytes))
    return openreg_fail(OPENREG_INVALID_ADDRESS,
                        "openreg: an allocator of the program gave %p for %zu bytes of device %d: "
                        "expected memory that it has of that device, where nothing else begins, or "
                        "NULL",
                        (void *)address, bytes, allocator->device);
  /* As of who asked; others may have used those records. */
  if (!slab_ensure(&allocator->blocks, 3) || !slab_ensure(&allocator->segments, 1))
    return OPENREG_SYSTEM;
  *segment = openreg_segment_add(allocator, request, address, bytes, source);
  return OPENREG_OK;
}

openreg_status openreg_source_take(struct allocator *allocator, const struct request *request,
                                   const openreg_memory_source *source, size_t bytes,
                                   struct segment **segment) {
  const openreg_memory_source asked = *source;
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

/* ---- giving back ----------------------------------------------------------------------------- */

void openreg_source_return(struct allocator *allocator) {
  struct segment *returned = allocator->returned;
  allocator->returned = NULL;
  allocator_unlock(allocator);
  for (struct segment *segment = returned; segment; segment = segment->above) {
    const openreg_memory_source *source = &segment->source;
    source->free(source->context, segment->address, segment->bytes, allocator->device,
                 segment->stream);
  }
  allocator_lock(allocator);
  for (struct segment *segment = returned, *next; segment; segment = next) {
    next = segment->above;
    slab_put(&allocator->segments, segment);
  }
}
