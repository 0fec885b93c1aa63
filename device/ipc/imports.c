/* imports.c: opening handles of other processes, and letting go of what they stand for.
 *
 * Opening goes by steps whose order matters: the entry is looked at, then the range is locked, and
 * then the entry is looked at once more. The exporter clears the entry while it has a write lock,
 * and importers give memory back while they have one, after the exporter's end: so who has the read
 * lock, and then finds the entry as it was and the exporter alive, has the memory.
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

static openreg_import *by_address[BUCKETS]; /* imported memory */

static openreg_import **bucket_of(const void *address) {
  return &by_address[(uintptr_t)address / OPENREG_EXPORT_ALIGNMENT % BUCKETS];
}

/* ---- which there are ------------------------------------------------------------------------- */

/* The place of the first import of the file that ends after `offset`. */
static size_t find_place(const struct peer_file *file, uint64_t offset) {
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
  if (file->import_count < file->import_room)
    return OPENREG_OK;
  size_t room = file->import_room == 0 ? 8 : 2 * file->import_room;
  openreg_import **imports = realloc(file->imports, room * sizeof(openreg_import *));
  if (imports == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an import");
  file->imports = imports;
  file->import_room = room;
  return OPENREG_OK;
}

static void insert(openreg_import *import) {
  struct peer_file *file = import->file;
  size_t place = find_place(file, import->offset);
  memmove(&file->imports[place + 1], &file->imports[place],
          (file->import_count - place) * sizeof(openreg_import *));
  file->imports[place] = import;
  file->import_count++;
  if (import->mapping == NULL)
    return;
  import->next_in_bucket = *bucket_of(import->address);
  *bucket_of(import->address) = import;
}

/* Returns the place of the next one. */
static size_t remove_import(openreg_import *import) {
  struct peer_file *file = import->file;
  size_t place = find_place(file, import->offset);
  file->import_count--;
  memmove(&file->imports[place], &file->imports[place + 1],
          (file->import_count - place) * sizeof(openreg_import *));
  if (import->mapping == NULL)
    return place;
  openreg_import **link = bucket_of(import->address);
  while (*link != import)
    link = &(*link)->next_in_bucket;
  *link = import->next_in_bucket;
  return place;
}

/* ---- what a handle stands for ---------------------------------------------------------------- */

/* An entry as it was read once, and checked. */
struct stated {
  uint64_t offset, bytes; /* in the file */
};

static bool is_current(const struct peer_file *file, const struct openreg_handle *parts) {
  return atomic_load(&file->entries[parts->index].nonce) == parts->nonce;
}

static const char *const stale = "what it was for was withdrawn by its exporter";
static const char *const nonsense = "its exporter's table holds values that cannot be";

static openreg_status read_memory(const struct peer_file *file, const struct openreg_handle *parts,
                                  struct stated *stated) {
  const struct openreg_export *entry = &file->entries[parts->index];
  uint32_t recorded = atomic_load(&entry->signal.recorded);
  stated->offset = atomic_load(&entry->offset);
  stated->bytes = atomic_load(&entry->bytes);
  if (!is_current(file, parts)) /* last, so that what was read is of this entry */
    return openreg_import_refuse(stale);
  if (stated->offset % OPENREG_EXPORT_ALIGNMENT != 0 || stated->offset >= file->arena_bytes ||
      stated->bytes == 0 || stated->bytes > file->arena_bytes - stated->offset ||
      (int32_t)(recorded - parts->point) < 0)
    return openreg_import_refuse(nonsense);
  return OPENREG_OK;
}

static openreg_status read_entry(const struct peer_file *file, const struct openreg_handle *parts,
                                 struct stated *stated) {
  if (!is_current(file, parts))
    return openreg_import_refuse(stale);
  if (atomic_load(&file->entries[parts->index].kind) != parts->kind)
    return openreg_import_refuse(nonsense);
  if (parts->kind == OPENREG_EXPORT_MEMORY)
    return read_memory(file, parts, stated);
  stated->offset = openreg_export_position(file->arena_bytes, parts->index);
  stated->bytes = sizeof(struct openreg_export);
  return OPENREG_OK;
}

static const char *const ended = "the process that made it has ended";

/* Gets a range that this process does not have yet, and looks again. */
static openreg_status lock_range(struct peer_file *file, const struct openreg_handle *parts,
                                 const struct stated *stated) {
  if (!openreg_range_lock_try(file->file, F_RDLCK, stated->offset, stated->bytes))
    return openreg_import_refuse(stale);
  bool is_good = is_current(file, parts);
  bool has_ended = openreg_peer_file_has_ended_locked(file);
  if (is_good && !has_ended)
    return OPENREG_OK;
  openreg_range_lock_release(file->file, stated->offset, stated->bytes);
  if (!has_ended)
    return openreg_import_refuse(stale);
  /* Another importer may have left out what was locked here. */
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
                                  const struct stated *stated, openreg_import **import) {
  openreg_status status = make_room(file);
  if (status != OPENREG_OK)
    return status;
  openreg_import *made = malloc(sizeof *made);
  if (made == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an import");
  *made = (openreg_import){.file = file,
                           .index = parts->index,
                           .nonce = parts->nonce,
                           .offset = stated->offset,
                           .bytes = stated->bytes};
  status = lock_range(file, parts, stated);
  if (status == OPENREG_OK) {
    status = map_range(made);
    if (status != OPENREG_OK)
      openreg_range_lock_release(file->file, stated->offset, stated->bytes);
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
  struct stated stated = {0};
  openreg_status status = read_entry(file, parts, &stated);
  if (status != OPENREG_OK)
    return status;
  size_t place = find_place(file, stated.offset);
  if (place == file->import_count || file->imports[place]->offset >= stated.offset + stated.bytes)
    return make_import(file, parts, &stated, import);
  openreg_import *found = file->imports[place];
  if (found->index != parts->index || found->nonce != parts->nonce ||
      found->offset != stated.offset || found->bytes != stated.bytes)
    return openreg_import_refuse(nonsense);
  if (openreg_peer_file_has_ended_locked(file))
    return openreg_import_refuse(ended);
  *import = found;
  return OPENREG_OK;
}

/* The device that has that number in the group. */
static openreg_status find_device(uint32_t number, int *device) {
  const struct openreg_visible *visible;
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status == OPENREG_OK)
    status = openreg_visible_get(&visible);
  if (status != OPENREG_OK)
    return status;
  if (number >= (uint32_t)config->device_count)
    return openreg_import_refuse("there is no such device");
  if (visible->device_of[number] >= 0) {
    *device = visible->device_of[number];
    return OPENREG_OK;
  }
  char why[128];
  snprintf(why, sizeof why, "it is of device %u of the group, which %s hides from this process",
           (unsigned)number, visible->variable);
  return openreg_import_refuse(why);
}

static openreg_status check_origin(const openreg_ipc_handle *handle, struct openreg_handle *parts,
                                   int *device) {
  openreg_status status = openreg_initialize();
  if (status != OPENREG_OK)
    return status;
  if (!openreg_handle_unpack(handle, parts))
    return openreg_import_refuse("it is not a handle, or not a whole one");
  if (parts->group != openreg_ledger_self().group)
    return openreg_import_refuse("it is of another group of processes");
  return find_device(parts->number, device);
}

static openreg_status check_handle(const openreg_ipc_handle *handle, uint32_t kind,
                                   struct openreg_handle *parts, int *device) {
  openreg_status status = check_origin(handle, parts, device);
  if (status != OPENREG_OK)
    return status;
  if (parts->kind != kind)
    return openreg_import_refuse(kind == OPENREG_EXPORT_MEMORY ? "it is not for memory"
                                                               : "it is not for an event");
  openreg_peer self = openreg_ledger_self();
  if (parts->slot == self.slot && parts->identity == self.identity)
    return openreg_import_refuse("this process made it");
  if (parts->index >= OPENREG_EXPORT_COUNT || parts->slot >= OPENREG_MAX_PROCESSES ||
      parts->nonce == 0 || parts->identity == 0)
    return openreg_import_refuse("it holds values that cannot be");
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
      openreg_peer_file_put_locked(file); /* an import has one reference, however often opened */
  }
  if (status == OPENREG_OK) {
    atomic_fetch_add(&file->entries[parts.index].received, 1);
    *point = parts.point;
  }
  openreg_imports_unlock();
  return status;
}

/* ---- letting go ------------------------------------------------------------------------------ */

static void close_locked(openreg_import *import) {
  if (--import->count > 0)
    return;
  struct peer_file *file = import->file;
  size_t place = remove_import(import);
  if (import->mapping != NULL)
    openreg_peer_file_unmap_locked(file, import->mapping);
  openreg_range_lock_release(file->file, import->offset, import->bytes);
  if (openreg_peer_file_has_ended_locked(file))
    openreg_reclaimer_reclaim_range_locked(file, place, import->offset, import->bytes);
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
  struct openreg_remote_point remote = openreg_import_point(import, point);
  status = openreg_remote_point_await_on_stream(&remote, of_device, stream);
  if (status != OPENREG_OK) {
    openreg_import_close(import);
    return status;
  }
  *device_address = import->address;
  *bytes = import->bytes;
  *device = of_device;
  return OPENREG_OK;
}
