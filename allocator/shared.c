/* shared.c: blocks that more than one process has: exported ones, and those of other processes.
 *
 * The device layer knows who has what (device.h). A block that was exported and is freed stays as
 * it is, and counts as allocated, until no other process has it; CUDA's tensors that were sent are
 * kept alive as long. An import is let go of when no stream of this process can use it any more. To
 * ask costs system calls, so those that have to wait are not looked after by each allocation but by
 * those that reserve memory, by exports, and whenever a cache is emptied.
 */
#include "allocator/internal.h"

/* ---- giving back ----------------------------------------------------------------------------- */

/* Ends the waiting of a freed block if it is over; the block must be in no list. */
static bool try_to_end(struct allocator *allocator, struct block *block) {
  if (block->state == BLOCK_CLOSING_IMPORT) {
    if (openreg_uses_are_busy(block))
      return false;
    openreg_uses_drop(allocator, block);
    openreg_status closed = openreg_ipc_close(block->shown.address);
    assert(closed == OPENREG_OK);
    (void)closed;
    block->is_shared = false;
    block_put_record(allocator, block);
    return true;
  }
  openreg_status status = openreg_ipc_withdraw(block->shown.address);
  assert(status == OPENREG_OK || status == OPENREG_NOT_READY);
  if (status != OPENREG_OK)
    return false;
  block->is_shared = false;
  openreg_allocator_take_back(allocator, block);
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
    __atomic_store_n(allocator_start(allocator, block->shown.address), NULL, __ATOMIC_RELAXED);
    block->state = BLOCK_AWAITING_IMPORTERS;
  }
  if (try_to_end(allocator, block))
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
    if (try_to_end(allocator, block)) {
      any = true;
      continue;
    }
    block->waiting = allocator->awaiting_importers;
    allocator->awaiting_importers = block;
  }
  return any;
}

openreg_status openreg_memory_collect(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  (void)openreg_shared_poll(allocator);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

/* ---- exports --------------------------------------------------------------------------------- */

/* Makes what is submitted to `stream` from now on come after the work of `other`. */
static openreg_status put_behind(int device, int stream, int other) {
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

static openreg_status require_exportable(const openreg_block *shown,
                                         const openreg_ipc_handle *handle) {
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK, "openreg: a block's memory stays with the process that "
                                          "allocated it: it cannot be exported after fork");
  if (!shown || !handle)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_block_export: %s is NULL",
                        shown ? "handle" : "block");
  if (shown->bytes == 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_export: the block has 0 bytes: there is nothing to export");
  if (openreg_block_is_imported(shown))
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg_block_export: the block at %p was imported: its memory can only "
                        "be exported by the process that allocated it",
                        shown->address);
  return OPENREG_OK;
}

openreg_status openreg_block_export(openreg_block *shown, int stream, openreg_ipc_handle *handle) {
  openreg_status status = require_exportable(shown, handle);
  if (status == OPENREG_OK)
    status = openreg_memory_collect(shown->device); /* there is a limit to what can be exported */
  if (status == OPENREG_OK && stream != shown->stream)
    status = put_behind(shown->device, stream, shown->stream);
  /* Without the lock: this may wait for room in the stream's queue. */
  if (status == OPENREG_OK)
    status = openreg_ipc_export(shown->address, shown->requested_bytes, stream, handle);
  if (status != OPENREG_OK)
    return status;
  struct block *block = block_of(shown);
  struct allocator *allocator = openreg_allocator_of(block);
  allocator_lock(allocator);
  assert(block->state == BLOCK_ALLOCATED);
  block->is_shared = true;
  allocator_unlock(allocator);
  return OPENREG_OK;
}

/* ---- imports --------------------------------------------------------------------------------- */

bool openreg_block_is_imported(const openreg_block *shown) {
  return shown && ((const struct block *)shown)->state == BLOCK_IMPORTED;
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

/* A block over memory that was opened. */
static openreg_status import_opened(const openreg_block *shown, openreg_block **result) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_open(shown->device, &allocator);
  if (status != OPENREG_OK)
    return status;
  allocator_lock(allocator);
  struct block *block = import_make(allocator);
  if (block)
    block->shown = *shown;
  allocator_unlock(allocator);
  if (!block)
    return OPENREG_SYSTEM;
  *result = &block->shown;
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
  openreg_block shown = {.stream = stream};
  int device;
  openreg_status status =
      openreg_ipc_open(handle, stream, &shown.address, &shown.requested_bytes, &device);
  if (status != OPENREG_OK)
    return status;
  shown.device = device;
  shown.bytes = round_up(shown.requested_bytes, UNIT_BYTES);
  status = import_opened(&shown, result);
  if (status != OPENREG_OK)
    openreg_ipc_close(shown.address);
  return status;
}

openreg_block *openreg_shared_find(struct allocator *allocator, const void *address) {
  allocator_lock(allocator);
  struct block *block = allocator->imports;
  while (block && block->shown.address != address)
    block = block->next;
  allocator_unlock(allocator);
  return block ? &block->shown : NULL;
}
