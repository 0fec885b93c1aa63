/* imports.c: opens and closes handles of other processes.
 *
 * The order of the steps matters when a handle is opened: read the entry, lock the range, read the
 * entry again. The exporter clears an entry only while it holds a write lock. Importers return
 * memory to the system only while they hold one, after the exporter has ended. So an importer that
 * has the read lock, and then finds the entry unchanged and the exporter alive, has the memory.
 */
#include "device/ipc/imports.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/range_lock.h"
#include "device/ipc/handle.h"
#include "device/process/state.h"
#include "device/process/visible_devices.h"
#include "device/streams/stream.h"

enum { BUCKETS = 1024 };

static openreg_import *by_address[BUCKETS]; /* imported memory, hashed by address */

static openreg_import **bucket_of(const void *address) {
  return &by_address[(uintptr_t)address / OPENREG_EXPORT_ALIGNMENT % BUCKETS];
}

/* ---- the imports of a file ------------------------------------------------------------------- */

/* Returns the position of the first import of the file that ends after `offset`. */
static size_t find_position(const struct peer_file *file, uint64_t offset) {
  size_t low = 0, high = file->import_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (file->imports[middle]->offset + file->imports[middle]->bytes <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static openreg_status make_room(struct peer_file *file) {
  if (file->import_count < file->import_capacity)
    return OPENREG_OK;
  size_t capacity = file->import_capacity == 0 ? 8 : 2 * file->import_capacity;
  openreg_import **imports = realloc(file->imports, capacity * sizeof(openreg_import *));
  if (imports == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an import");
  file->imports = imports;
  file->import_capacity = capacity;
  return OPENREG_OK;
}

static void insert(openreg_import *import) {
  struct peer_file *file = import->file;
  size_t position = find_position(file, import->offset);
  memmove(&file->imports[position + 1], &file->imports[position],
          (file->import_count - position) * sizeof(openreg_import *));
  file->imports[position] = import;
  file->import_count++;
  if (import->mapping == NULL)
    return;
  import->next_in_bucket = *bucket_of(import->address);
  *bucket_of(import->address) = import;
}

/* Returns the position of the next import. */
static size_t remove_import(openreg_import *import) {
  struct peer_file *file = import->file;
  size_t position = find_position(file, import->offset);
  file->import_count--;
  memmove(&file->imports[position], &file->imports[position + 1],
          (file->import_count - position) * sizeof(openreg_import *));
  if (import->mapping == NULL)
    return position;
  openreg_import **link = bucket_of(import->address);
  while (*link != import)
    link = &(*link)->next_in_bucket;
  *link = import->next_in_bucket;
  return position;
}

/* ---- checking handles ------------------------------------------------------------------------ */

/* The range of an entry. It was read once and checked. */
struct checked_range {
  uint64_t offset, bytes; /* position in the file */
};

static bool is_current(const struct peer_file *file, const struct openreg_handle *parts) {
  return atomic_load(&file->entries[parts->index].nonce) == parts->nonce;
}

static const char *const stale = "its exporter has withdrawn the memory or destroyed the event";
static const char *const corrupt = "the exporter's table is corrupt";

static openreg_status read_memory(const struct peer_file *file, const struct openreg_handle *parts,
                                  struct checked_range *checked_range) {
  const struct openreg_export *entry = &file->entries[parts->index];
  uint32_t recorded = atomic_load(&entry->signal.recorded);
  checked_range->offset = atomic_load(&entry->offset);
  checked_range->bytes = atomic_load(&entry->bytes);
  if (!is_current(file, parts)) /* checked last, so that all values belong to this entry */
    return openreg_import_refuse(stale);
  if (checked_range->offset % OPENREG_EXPORT_ALIGNMENT != 0 ||
      checked_range->offset >= file->arena_bytes || checked_range->bytes == 0 ||
      checked_range->bytes > file->arena_bytes - checked_range->offset ||
      (int32_t)(recorded - parts->point) < 0)
    return openreg_import_refuse(corrupt);
  return OPENREG_OK;
}

static openreg_status read_entry(const struct peer_file *file, const struct openreg_handle *parts,
                                 struct checked_range *checked_range) {
  if (!is_current(file, parts))
    return openreg_import_refuse(stale);
  if (atomic_load(&file->entries[parts->index].kind) != parts->kind)
    return openreg_import_refuse(corrupt);
  if (parts->kind == OPENREG_EXPORT_MEMORY)
    return read_memory(file, parts, checked_range);
  checked_range->offset = openreg_export_position(file->arena_bytes, parts->index);
  checked_range->bytes = sizeof(struct openreg_export);
  return OPENREG_OK;
}

static const char *const ended = "the process that made it has ended";

/* Locks a range that this process does not have yet, and checks the entry again. */
static openreg_status lock_range(struct peer_file *file, const struct openreg_handle *parts,
                                 const struct checked_range *checked_range) {
  if (!openreg_range_lock_try(file->file, F_RDLCK, checked_range->offset, checked_range->bytes))
    return openreg_import_refuse(stale);
  bool is_good = is_current(file, parts);
  bool has_ended = openreg_peer_file_has_ended_locked(file);
  if (is_good && !has_ended)
    return OPENREG_OK;
  openreg_range_lock_release(file->file, checked_range->offset, checked_range->bytes);
  if (!has_ended)
    return openreg_import_refuse(stale);
  /* Another importer may have skipped this range while it was locked here. */
  openreg_reclaimer_reclaim_locked(file);
  return openreg_import_refuse(ended);
}

/* ---- opening --------------------------------------------------------------------------------- */

static openreg_status map_range(openreg_import *import) {
  struct peer_file *file = import->file;
  if (import->offset >= file->arena_bytes)
    return OPENREG_OK; /* the entry of an event */
  openreg_status status =
      openreg_peer_file_map_locked(file, import->offset, import->bytes, &import->mapping);
  if (status == OPENREG_OK)
    import->address = (char *)import->mapping->address + (import->offset - import->mapping->offset);
  return status;
}

static openreg_status make_import(struct peer_file *file, const struct openreg_handle *parts,
                                  const struct checked_range *checked_range,
                                  openreg_import **import) {
  openreg_status status = make_room(file);
  if (status != OPENREG_OK)
    return status;
  openreg_import *made = malloc(sizeof *made);
  if (made == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an import");
  *made = (openreg_import){.file = file,
                           .index = parts->index,
                           .nonce = parts->nonce,
                           .offset = checked_range->offset,
                           .bytes = checked_range->bytes};
  status = lock_range(file, parts, checked_range);
  if (status == OPENREG_OK) {
    status = map_range(made);
    if (status != OPENREG_OK)
      openreg_range_lock_release(file->file, checked_range->offset, checked_range->bytes);
  }
  if (status != OPENREG_OK) {
    free(made);
    return status;
  }
  insert(made);
  *import = made;
  return OPENREG_OK;
}

static openreg_status find_or_make_import(struct peer_file *file,
                                          const struct openreg_handle *parts,
                                          openreg_import **import) {
  struct checked_range checked_range = {0};
  openreg_status status = read_entry(file, parts, &checked_range);
  if (status != OPENREG_OK)
    return status;
  size_t position = find_position(file, checked_range.offset);
  if (position == file->import_count ||
      file->imports[position]->offset >= checked_range.offset + checked_range.bytes)
    return make_import(file, parts, &checked_range, import);
  openreg_import *found = file->imports[position];
  if (found->index != parts->index || found->nonce != parts->nonce ||
      found->offset != checked_range.offset || found->bytes != checked_range.bytes)
    return openreg_import_refuse(corrupt);
  if (openreg_peer_file_has_ended_locked(file))
    return openreg_import_refuse(ended);
  *import = found;
  return OPENREG_OK;
}

/* Finds the device with that group index. */
static openreg_status find_device(uint32_t number, int *device) {
  const struct openreg_visible *visible;
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status == OPENREG_OK)
    status = openreg_visible_get(&visible);
  if (status != OPENREG_OK)
    return status;
  if (number >= (uint32_t)config->device_count)
    return openreg_import_refuse("its device does not exist");
  if (visible->device_of[number] >= 0) {
    *device = visible->device_of[number];
    return OPENREG_OK;
  }
  char why[128];
  snprintf(why, sizeof why,
           "it belongs to device %u of the group, which %s hides from this process",
           (unsigned)number, visible->variable);
  return openreg_import_refuse(why);
}

static openreg_status check_origin(const openreg_ipc_handle *handle, struct openreg_handle *parts,
                                   int *device) {
  openreg_status status = openreg_initialize();
  if (status != OPENREG_OK)
    return status;
  if (!openreg_handle_unpack(handle, parts))
    return openreg_import_refuse("it is not a handle, or it is truncated");
  if (parts->group != openreg_ledger_self().group)
    return openreg_import_refuse("it belongs to another group of processes");
  return find_device(parts->group_index, device);
}

static openreg_status check_handle(const openreg_ipc_handle *handle, uint32_t kind,
                                   struct openreg_handle *parts, int *device) {
  openreg_status status = check_origin(handle, parts, device);
  if (status != OPENREG_OK)
    return status;
  if (parts->kind != kind)
    return openreg_import_refuse(kind == OPENREG_EXPORT_MEMORY ? "it is not a handle of memory"
                                                               : "it is not a handle of an event");
  openreg_peer self = openreg_ledger_self();
  if (parts->slot == self.slot && parts->identity == self.identity)
    return openreg_import_refuse("this process made it");
  if (parts->index >= OPENREG_EXPORT_COUNT || parts->slot >= OPENREG_MAX_PROCESSES ||
      parts->nonce == 0 || parts->identity == 0)
    return openreg_import_refuse("it contains invalid values");
  return OPENREG_OK;
}

openreg_status openreg_ipc_device(const openreg_ipc_handle *handle, int *device) {
  struct openreg_handle parts;
  return check_origin(handle, &parts, device);
}

openreg_status openreg_import_open(const openreg_ipc_handle *handle, uint32_t kind,
                                   openreg_import **import, uint32_t *point) {
  struct openreg_handle parts;
  struct peer_file *file;
  int device = -1;
  openreg_status status = check_handle(handle, kind, &parts, &device);
  if (status == OPENREG_OK)
    status = openreg_require_context(device);
  if (status == OPENREG_OK)
    status = openreg_imports_lock();
  if (status != OPENREG_OK)
    return status;
  status = openreg_peer_file_get_locked(openreg_handle_peer(&parts), device, &file);
  if (status == OPENREG_OK) {
    status = find_or_make_import(file, &parts, import);
    if (status != OPENREG_OK)
      openreg_peer_file_put_locked(file);
    else if ((*import)->count++ > 0)
      openreg_peer_file_put_locked(
          file); /* an import holds one reference, however often it was opened */
  }
  if (status == OPENREG_OK) {
    atomic_fetch_add(&file->entries[parts.index].handles_opened, 1);
    *point = parts.point;
  }
  openreg_imports_unlock();
  return status;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void close_locked(openreg_import *import) {
  if (--import->count > 0)
    return;
  struct peer_file *file = import->file;
  size_t position = remove_import(import);
  if (import->mapping != NULL)
    openreg_peer_file_unmap_locked(file, import->mapping);
  openreg_range_lock_release(file->file, import->offset, import->bytes);
  if (openreg_peer_file_has_ended_locked(file))
    openreg_reclaimer_reclaim_range_locked(file, position, import->offset, import->bytes);
  openreg_peer_file_put_locked(file);
  free(import);
}

void openreg_import_close(openreg_import *import) {
  if (openreg_in_bad_fork() || openreg_imports_lock() != OPENREG_OK)
    return;
  close_locked(import);
  openreg_imports_unlock();
}

openreg_status openreg_ipc_close(void *device_address) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK)
    status = openreg_imports_lock();
  if (status != OPENREG_OK)
    return status;
  openreg_import *import = *bucket_of(device_address);
  while (import != NULL && import->address != device_address)
    import = import->next_in_bucket;
  if (import != NULL)
    close_locked(import);
  openreg_imports_unlock();
  if (import == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: no imported memory begins at %p",
                        device_address);
  return OPENREG_OK;
}

openreg_status openreg_ipc_open(const openreg_ipc_handle *handle, int stream, void **device_address,
                                size_t *bytes, int *device) {
  openreg_import *import;
  uint32_t point;
  openreg_status status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    status = openreg_import_open(handle, OPENREG_EXPORT_MEMORY, &import, &point);
  if (status != OPENREG_OK)
    return status;
  int of_device = import->file->device;
  struct openreg_remote_fence remote = openreg_import_fence(import, point);
  status = openreg_remote_fence_await_on_stream(&remote, of_device, stream);
  if (status != OPENREG_OK) {
    openreg_import_close(import);
    return status;
  }
  *device_address = import->address;
  *bytes = import->bytes;
  *device = of_device;
  return OPENREG_OK;
}
