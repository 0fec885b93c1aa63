/* shared.c: blocks that several processes hold: exported ones, and imports of other processes'
 * blocks.
 *
 * The device layer knows which process holds what (device.h). A freed block that was exported stays
 * as it is, and counts as allocated, until no other process holds it. CUDA also keeps tensors alive
 * that were sent. An import is released when no stream of this process can use it any more.
 * Checking costs system calls, so not every allocation checks the waiting blocks. Requests that
 * reserve memory, exports, and emptying a cache do.
 */
#include "allocator/internal.h"

/* ---- freeing --------------------------------------------------------------------------------- */

/* Frees a waiting block if its wait is over. The block must be in no list. */
static bool try_to_finish(struct allocator *allocator, struct block *block) {
  if (block->state == BLOCK_CLOSING_IMPORT) {
    if (openreg_stream_uses_are_busy(block))
      return false;
    openreg_stream_uses_drop(allocator, block);
    openreg_status closed = openreg_ipc_close(block->base.address);
    assert(closed == OPENREG_OK);
    (void)closed;
    block->is_shared = false;
    block_put_record(allocator, block);
    return true;
  }
  openreg_status status = openreg_ipc_withdraw(block->base.address);
  assert(status == OPENREG_OK || status == OPENREG_NOT_READY);
  if (status != OPENREG_OK)
    return false;
  block->is_shared = false;
  openreg_allocator_return_block(allocator, block);
  return true;
}

static void imports_remove(struct allocator *allocator, struct block *block) {
  *(block->prev ? &block->prev->next : &allocator->imports) = block->next;
  if (block->next)
    block->next->prev = block->prev;
}

void openreg_shared_free(struct allocator *allocator, struct block *block) {
  if (block->state == BLOCK_IMPORTED) {
    imports_remove(allocator, block);
    block->state = BLOCK_CLOSING_IMPORT;
  } else {
    assert(block->state == BLOCK_ALLOCATED);
    __atomic_store_n(address_map_slot(allocator, block->base.address), NULL, __ATOMIC_RELAXED);
    block->state = BLOCK_AWAITING_IMPORTERS;
  }
  if (try_to_finish(allocator, block))
    return;
  block->waiting = allocator->awaiting_importers;
  allocator->awaiting_importers = block;
}

bool openreg_shared_poll(struct allocator *allocator) {
  struct block *waiting = allocator->awaiting_importers;
  bool any = false;
  allocator->awaiting_importers = NULL;
  while (waiting) {
    struct block *block = waiting;
    waiting = block->waiting;
    if (try_to_finish(allocator, block)) {
      any = true;
      continue;
    }
    block->waiting = allocator->awaiting_importers;
    allocator->awaiting_importers = block;
  }
  return any;
}

openreg_status openreg_memory_collect_shared(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  (void)openreg_shared_poll(allocator);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

/* ---- exports --------------------------------------------------------------------------------- */

/* Orders later work of `stream` after the current work of `other`. */
static openreg_status order_after(int device, int stream, int other) {
  openreg_event *event;
  openreg_status status = openreg_event_create(device, false, &event);
  if (status != OPENREG_OK)
    return status;
  status = openreg_event_record(event, other);
  if (status == OPENREG_OK)
    status = openreg_stream_wait_event(device, stream, event);
  openreg_event_destroy(event);
  return status;
}

static openreg_status require_exportable(const openreg_block *base,
                                         const openreg_ipc_handle *handle) {
  if (openreg_in_bad_fork())
    return openreg_require_no_bad_fork();
  if (!base || !handle)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_export: %s is NULL",
                        base ? "handle" : "block");
  if (base->bytes == 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_export: the block has 0 bytes: there is nothing to export");
  if (openreg_block_is_imported(base))
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg_block_export: the block at %p was imported: its memory can only "
                        "be exported by the process that allocated it",
                        base->address);
  return OPENREG_OK;
}

openreg_status openreg_block_export(openreg_block *base, int stream, openreg_ipc_handle *handle) {
  openreg_status status = require_exportable(base, handle);
  if (status == OPENREG_OK)
    status = openreg_memory_collect_shared(base->device); /* the number of exports is limited */
  if (status == OPENREG_OK && stream != base->stream)
    status = order_after(base->device, stream, base->stream);
  /* Without the lock: this may wait for room in the stream's queue. */
  if (status == OPENREG_OK)
    status = openreg_ipc_export(base->address, base->requested_bytes, stream, handle);
  if (status != OPENREG_OK)
    return status;
  struct block *block = block_of(base);
  struct allocator *allocator = openreg_allocator_of_block(block);
  allocator_lock(allocator);
  assert(block->state == BLOCK_ALLOCATED);
  block->is_shared = true;
  allocator_unlock(allocator);
  return OPENREG_OK;
}

/* ---- imports --------------------------------------------------------------------------------- */

bool openreg_block_is_imported(const openreg_block *base) {
  return base && ((const struct block *)base)->state == BLOCK_IMPORTED;
}

static struct block *import_make(struct allocator *allocator) {
  if (!slab_ensure(&allocator->blocks, 1))
    return NULL;
  struct block *block = block_take_record(allocator);
  *block = (struct block){.state = BLOCK_IMPORTED, .is_shared = true, .next = allocator->imports};
  if (block->next)
    block->next->prev = block;
  return allocator->imports = block;
}

/* Creates a block over memory that was opened. */
static openreg_status import_opened(const openreg_block *base, openreg_block **result) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_open(base->device, &allocator);
  if (status != OPENREG_OK)
    return status;
  allocator_lock(allocator);
  struct block *block = import_make(allocator);
  if (block)
    block->base = *base;
  allocator_unlock(allocator);
  if (!block)
    return OPENREG_SYSTEM;
  *result = &block->base;
  return OPENREG_OK;
}

openreg_status openreg_block_import(const openreg_ipc_handle *handle, int stream,
                                    openreg_block **result) {
  if (!handle || !result)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_import: %s is NULL",
                        handle ? "block" : "handle");
  if (stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_import: stream %d: expected 0 to %d", stream,
                        OPENREG_STREAMS_PER_DEVICE - 1);
  openreg_block base = {.stream = stream};
  int device;
  openreg_status status =
      openreg_ipc_open(handle, stream, &base.address, &base.requested_bytes, &device);
  if (status != OPENREG_OK)
    return status;
  base.device = device;
  base.bytes = round_up(base.requested_bytes, UNIT_BYTES);
  status = import_opened(&base, result);
  if (status != OPENREG_OK)
    openreg_ipc_close(base.address);
  return status;
}

openreg_block *openreg_shared_find(struct allocator *allocator, const void *address) {
  allocator_lock(allocator);
  struct block *block = allocator->imports;
  while (block && block->base.address != address)
    block = block->next;
  allocator_unlock(allocator);
  return block ? &block->base : NULL;
}
