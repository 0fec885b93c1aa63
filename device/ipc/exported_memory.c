/* exported_memory.c: exported ranges of this process's device memory. See export_table.h.
 */
#include "device/ipc/export_table.h"

#include <assert.h>
#include <stdlib.h>

#include "device/ipc/handle.h"
#include "device/process/state.h"
#include "device/process/visible_devices.h"
#include "device/streams/stream.h"

static uint32_t *bucket_of(struct export_table *table, uint64_t offset) {
  return &table->buckets[offset / OPENREG_EXPORT_ALIGNMENT % OPENREG_EXPORT_BUCKETS];
}

static uint32_t find_memory(struct export_table *table, uint64_t offset) {
  uint32_t index = *bucket_of(table, offset);
  while (index != OPENREG_NO_EXPORT && table->exported[index].offset != offset)
    index = table->exported[index].next;
  return index;
}

static void set_handles_made(struct export_table *table, uint32_t index, uint64_t handles_made) {
  table->exported[index].handles_made = handles_made;
  atomic_store(&table->entries[index].handles_made, handles_made);
}

static openreg_status find_or_add_memory(struct export_table *table, uint64_t offset,
                                         uint64_t bytes, uint32_t *index) {
  *index = find_memory(table, offset);
  if (*index != OPENREG_NO_EXPORT && table->exported[*index].bytes != bytes)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: cannot export %zu bytes: %zu bytes at the same address are "
                        "already exported; export the same size again, or withdraw the range first",
                        (size_t)bytes, (size_t)table->exported[*index].bytes);
  if (*index != OPENREG_NO_EXPORT)
    return OPENREG_OK;
  openreg_status status = openreg_export_allocate(table, index);
  if (status == OPENREG_OK)
    status = openreg_export_fill(table, *index, OPENREG_EXPORT_MEMORY, offset, bytes);
  if (status == OPENREG_OK)
    openreg_export_push(table, bucket_of(table, offset), *index);
  return status;
}

static void free_memory_entry(struct export_table *table, uint32_t index) {
  struct exported *exported = &table->exported[index];
  openreg_export_unlink(table, bucket_of(table, exported->offset), index);
  openreg_export_push(table, &table->free, index);
  openreg_signal_finish_all(&exported->signal);
}

/* Data for the task that tells importers when the work submitted before an export has finished. */
struct pending_export {
  struct export_table *table;
  uint32_t index, point;
  uint64_t nonce;
};

static openreg_status complete(void *data) {
  struct pending_export *pending = data;
  struct exported *exported = &pending->table->exported[pending->index];
  openreg_exports_lock();
  if (exported->nonce == pending->nonce)
    openreg_signal_end(&exported->signal, pending->point);
  openreg_exports_unlock();
  free(pending);
  return OPENREG_OK;
}

static openreg_status launch_completion(int device, int stream,
                                        const struct pending_export *pending) {
  struct pending_export *launched = malloc(sizeof *launched);
  if (launched == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an export");
  *launched = *pending;
  openreg_status status = openreg_stream_launch(device, stream, complete, launched);
  if (status != OPENREG_OK)
    free(launched);
  return status;
}

static void cancel(const struct pending_export *pending) {
  struct export_table *table = pending->table;
  openreg_exports_lock();
  struct exported *exported = &table->exported[pending->index];
  assert(exported->nonce == pending->nonce && exported->handles_made > 0);
  openreg_signal_end(&exported->signal, pending->point);
  set_handles_made(table, pending->index, exported->handles_made - 1);
  if (exported->handles_made == 0) {
    openreg_export_clear(table, pending->index);
    free_memory_entry(table, pending->index);
  }
  openreg_exports_unlock();
}

static openreg_status add_handle_locked(struct export_table *table, uint64_t offset, uint64_t bytes,
                                        bool is_idle, struct pending_export *pending) {
  openreg_exports_free_destroyed_events(table);
  openreg_status status = find_or_add_memory(table, offset, bytes, &pending->index);
  if (status != OPENREG_OK)
    return status;
  struct exported *exported = &table->exported[pending->index];
  if (is_idle)
    pending->point = openreg_signal_mark(&exported->signal);
  else
    status = openreg_signal_begin(&exported->signal, &pending->point);
  if (status == OPENREG_OK) {
    openreg_signal_publish(&exported->signal, pending->point);
    set_handles_made(table, pending->index, exported->handles_made + 1);
  } else if (exported->handles_made == 0) {
    openreg_export_clear(table, pending->index);
    free_memory_entry(table, pending->index);
  }
  pending->table = table;
  pending->nonce = exported->nonce;
  return status;
}

static openreg_status require_exportable(void *device_address, size_t bytes, int stream,
                                         int *device, uint64_t *offset) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK && bytes == 0)
    status = openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: cannot export 0 bytes at %p",
                          device_address);
  if (status == OPENREG_OK)
    status = openreg_arena_check_range(device_address, bytes, device);
  if (status == OPENREG_OK && *device < 0)
    status = openreg_fail(OPENREG_INVALID_ADDRESS, "openreg: %p is not in the memory of any device",
                          device_address);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status != OPENREG_OK)
    return status;
  size_t arena_bytes;
  void *base;
  status = openreg_arena_get(*device, &base, &arena_bytes);
  if (status != OPENREG_OK)
    return status;
  *offset = (uint64_t)((uintptr_t)device_address - (uintptr_t)base);
  if (*offset >= arena_bytes)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the memory at %p was imported from another process; only that "
                        "process can export it",
                        device_address);
  if (*offset % OPENREG_EXPORT_ALIGNMENT != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: cannot export memory at %p: its address must be a multiple of %d",
                        device_address, (int)OPENREG_EXPORT_ALIGNMENT);
  return OPENREG_OK;
}

openreg_status openreg_ipc_export(void *device_address, size_t bytes, int stream,
                                  openreg_ipc_handle *handle) {
  int device;
  uint64_t offset;
  struct export_table *table;
  openreg_status status = require_exportable(device_address, bytes, stream, &device, &offset);
  if (status == OPENREG_OK)
    status = openreg_export_table_lock(device, &table);
  if (status != OPENREG_OK)
    return status;
  struct pending_export pending;
  bool is_idle = openreg_stream_is_idle(device, stream);
  status = add_handle_locked(table, offset, bytes, is_idle, &pending);
  openreg_exports_unlock();
  if (status == OPENREG_OK && !is_idle) {
    status = launch_completion(device, stream, &pending);
    if (status != OPENREG_OK)
      cancel(&pending);
  }
  if (status == OPENREG_OK)
    openreg_handle_pack(
        (struct openreg_handle){.kind = OPENREG_EXPORT_MEMORY,
                                .group_index = (uint32_t)openreg_visible_group_index(device),
                                .index = pending.index,
                                .point = pending.point,
                                .nonce = pending.nonce},
        handle);
  return status;
}

static openreg_status withdraw_locked(struct export_table *table, uint32_t index) {
  struct exported *exported = &table->exported[index];
  if (exported->handles_made > atomic_load(&table->entries[index].handles_opened) ||
      !openreg_export_clear_if_unused(table, index, exported->offset, exported->bytes))
    return OPENREG_NOT_READY;
  free_memory_entry(table, index);
  return OPENREG_OK;
}

openreg_status openreg_ipc_withdraw(void *device_address) {
  openreg_status status = openreg_require_no_bad_fork();
  int device = openreg_arena_device_of(device_address);
  void *base;
  size_t arena_bytes;
  if (status == OPENREG_OK && device >= 0)
    status = openreg_arena_get(device, &base, &arena_bytes);
  if (status != OPENREG_OK)
    return status;
  uint32_t index = OPENREG_NO_EXPORT;
  openreg_exports_lock();
  if (device >= 0 && openreg_export_tables[device].entries != NULL)
    index = find_memory(&openreg_export_tables[device],
                        (uint64_t)((uintptr_t)device_address - (uintptr_t)base));
  if (index != OPENREG_NO_EXPORT)
    status = withdraw_locked(&openreg_export_tables[device], index);
  openreg_exports_unlock();
  if (index == OPENREG_NO_EXPORT)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: no exported memory begins at %p",
                        device_address);
  return status;
}

static void *recall_locked(struct export_table *table, int device,
                           const struct openreg_handle *parts) {
  const struct exported *exported = &table->exported[parts->index];
  if (exported->kind != OPENREG_EXPORT_MEMORY || exported->nonce != parts->nonce)
    return NULL;
  size_t arena_bytes;
  void *base;
  if (openreg_arena_get(device, &base, &arena_bytes) != OPENREG_OK)
    return NULL;
  atomic_fetch_add(&table->entries[parts->index].handles_opened, 1);
  return (char *)base + exported->offset;
}

openreg_status openreg_ipc_recall(const openreg_ipc_handle *handle, void **device_address) {
  *device_address = NULL;
  struct openreg_handle parts;
  openreg_status status = openreg_initialize();
  if (status != OPENREG_OK || !openreg_handle_unpack(handle, &parts))
    return status;
  openreg_peer self = openreg_ledger_self();
  if (parts.group != self.group || parts.slot != self.slot || parts.identity != self.identity)
    return OPENREG_OK;
  int device = openreg_visible_device((int)parts.group_index);
  bool is_possible = parts.kind == OPENREG_EXPORT_MEMORY && device >= 0 &&
                     parts.index < OPENREG_EXPORT_COUNT && parts.nonce != 0;
  openreg_exports_lock();
  struct export_table *table = is_possible ? &openreg_export_tables[device] : NULL;
  if (table != NULL && table->entries != NULL)
    *device_address = recall_locked(table, device, &parts);
  openreg_exports_unlock();
  if (*device_address == NULL)
    return openreg_fail(
        OPENREG_INVALID_ARGUMENT,
        "openreg: the handle is rejected: this process made it and has withdrawn its memory");
  return OPENREG_OK;
}
