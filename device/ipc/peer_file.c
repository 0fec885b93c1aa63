/* peer_file.c: the memory files of other processes that this process has opened.
 *
 * The ledger contains the process and the descriptor of each file. It is memory that others write,
 * so the opened file is verified: it must have the expected inode, belong to this user, have the
 * size of such a device, and be sealed so that no mapping can lose its end.
 */
#define _GNU_SOURCE /* F_GET_SEALS */
#include "device/ipc/imports.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/forks.h"
#include "base/proc.h"

struct peer_file *openreg_peer_files;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the lock and forks ---------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* A child has no mappings. It must not keep a file description, which would keep this process's
 * locks. */
static void after_fork_in_child(void) {
  for (struct peer_file *file = openreg_peer_files; file != NULL; file = file->next) {
    close(file->file);
    if (file->pidfd >= 0)
      close(file->pidfd);
  }
  openreg_reclaimer_abandon();
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_handlers fork_handlers =
    OPENREG_FORK_HANDLERS(before_fork, after_fork_in_parent, after_fork_in_child);

openreg_status openreg_imports_lock(void) {
  openreg_status status = openreg_forks_register(&fork_handlers);
  if (status != OPENREG_OK)
    return status;
  pthread_mutex_lock(&lock);
  return OPENREG_OK;
}

void openreg_imports_unlock(void) {
  pthread_mutex_unlock(&lock);
}

openreg_status openreg_import_refuse(const char *why) {
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg: the handle is rejected: %s (a handle is valid in processes of the "
                      "exporter's group, while the exporter lives and has not withdrawn it)",
                      why);
}

/* ---- finding and checking -------------------------------------------------------------------- */

static const char *find_fault(const struct stat *status, int seals, uint64_t inode) {
  if (!S_ISREG(status->st_mode) || status->st_ino != inode)
    return "its exporter's open file is not the expected memory file";
  if (status->st_uid != geteuid())
    return "its exporter's memory file belongs to another user";
  if ((uint64_t)status->st_size <= OPENREG_EXPORTS_BYTES)
    return "its exporter's memory file is too short";
  if (seals < 0 || !(seals & F_SEAL_SHRINK))
    return "its exporter's memory file is not sealed";
  return NULL;
}

openreg_status openreg_peer_memory_file_open(const openreg_peer_location *location, int *file,
                                             uint64_t *arena_bytes) {
  char path[64], why[128];
  struct stat status;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", location->pid, location->file);
  /* It may not be a regular file. Opening must not block, and must not acquire a controlling
   * terminal. */
  int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened < 0) {
    snprintf(why, sizeof why, "cannot open the memory file of process %d: %s", location->pid,
             openreg_proc_error(errno));
    return openreg_import_refuse(why);
  }
  const char *fault = "its exporter's memory file cannot be examined";
  if (fstat(opened, &status) == 0)
    fault = find_fault(&status, fcntl(opened, F_GET_SEALS), location->inode);
  if (fault == NULL) {
    *file = opened;
    *arena_bytes = (uint64_t)status.st_size - OPENREG_EXPORTS_BYTES;
    return OPENREG_OK;
  }
  close(opened);
  return openreg_import_refuse(fault);
}

static openreg_status open_file(struct peer_file *file, const openreg_peer_location *location) {
  uint64_t arena_bytes;
  openreg_status status = openreg_peer_memory_file_open(location, &file->file, &arena_bytes);
  if (status != OPENREG_OK || arena_bytes == file->arena_bytes)
    return status;
  close(file->file);
  return openreg_import_refuse("its exporter's memory file does not have the size of this device");
}

/* Opens a separate description for mapping, to be closed at once: the one with the locks is not
 * mapped. */
static openreg_status open_for_mapping(const struct peer_file *file, int *mapped) {
  *mapped = openreg_proc_reopen(file->file);
  if (*mapped >= 0)
    return OPENREG_OK;
  return openreg_fail(OPENREG_SYSTEM, "openreg: cannot reopen the memory file of process %d: %s",
                      file->pid, openreg_proc_error(errno));
}

static openreg_status map_table(struct peer_file *file) {
  int mapped;
  openreg_status status = open_for_mapping(file, &mapped);
  if (status != OPENREG_OK)
    return status;
  status = openreg_exports_map(mapped, file->arena_bytes, &file->entries);
  close(mapped);
  return status;
}

static openreg_status fill_in(struct peer_file *file, const openreg_peer_location *location) {
  openreg_status status = open_file(file, location);
  if (status != OPENREG_OK)
    return status;
  status = openreg_reclaimer_start_locked();
  if (status == OPENREG_OK)
    status = openreg_ledger_pin_record(file->peer);
  if (status == OPENREG_OK) {
    status = map_table(file);
    if (status != OPENREG_OK)
      openreg_ledger_unpin_record(file->peer);
  }
  if (status != OPENREG_OK)
    close(file->file);
  return status;
}

static openreg_status open_peer_file(openreg_peer peer, int device, struct peer_file **file) {
  openreg_peer_location location;
  if (!openreg_ledger_find_peer(peer, device, &location))
    return openreg_import_refuse("no living process of this group made it");
  struct peer_file *opened = calloc(1, sizeof *opened);
  if (opened == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an import");
  size_t arena_bytes;
  openreg_arena_kernel_base(device, &arena_bytes);
  *opened = (struct peer_file){
      .peer = peer, .device = device, .pid = location.pid, .pidfd = -1, .arena_bytes = arena_bytes};
  openreg_status status = fill_in(opened, &location);
  if (status != OPENREG_OK) {
    free(opened);
    return status;
  }
  opened->next = openreg_peer_files;
  openreg_peer_files = opened;
  openreg_reclaimer_watch_locked(opened);
  *file = opened;
  return OPENREG_OK;
}

static bool is_same_peer(openreg_peer one, openreg_peer other) {
  return one.group == other.group && one.identity == other.identity && one.slot == other.slot;
}

openreg_status openreg_peer_file_get_locked(openreg_peer peer, int device,
                                            struct peer_file **file) {
  struct peer_file *found = openreg_peer_files;
  while (found != NULL && !(found->device == device && is_same_peer(found->peer, peer)))
    found = found->next;
  openreg_status status = OPENREG_OK;
  if (found == NULL)
    status = open_peer_file(peer, device, &found);
  if (status == OPENREG_OK) {
    found->references++;
    *file = found;
  }
  return status;
}

void openreg_peer_file_drop_locked(struct peer_file *file) {
  struct peer_file **link = &openreg_peer_files;
  while (*link != file)
    link = &(*link)->next;
  *link = file->next;
  openreg_reclaimer_unwatch_locked(file);
  openreg_exports_unmap(file->entries);
  close(file->file);
  openreg_ledger_unpin_record(file->peer);
  free(file->imports);
  free(file);
}

/* Keeps a file whose process has ended until the thread has reclaimed its memory, which another
 * importer may have prevented so far. */
void openreg_peer_file_put_locked(struct peer_file *file) {
  if (--file->references == 0 && (!file->has_ended || file->is_reclaimed))
    openreg_peer_file_drop_locked(file);
}

bool openreg_peer_file_has_ended_locked(struct peer_file *file) {
  if (!file->has_ended && !openreg_ledger_is_alive(file->peer)) {
    file->has_ended = true;
    openreg_reclaimer_unwatch_locked(file);
    openreg_reclaimer_wake();
  }
  return file->has_ended;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static struct mapping *find_mapping(struct peer_file *file, uint64_t offset, size_t bytes) {
  struct mapping *mapping = file->mappings;
  while (mapping != NULL && !(mapping->offset == offset && mapping->bytes == bytes))
    mapping = mapping->next;
  return mapping;
}

static openreg_status make_mapping(struct peer_file *file, uint64_t offset, size_t bytes,
                                   struct mapping **mapping) {
  struct mapping *made = malloc(sizeof *made);
  if (made == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an import");
  *made = (struct mapping){.offset = offset, .bytes = bytes, .next = file->mappings};
  int mapped;
  openreg_status status = open_for_mapping(file, &mapped);
  if (status == OPENREG_OK) {
    status = openreg_arena_map_import(file->device, mapped, offset, bytes, &made->address);
    close(mapped);
  }
  if (status != OPENREG_OK) {
    free(made);
    return status;
  }
  file->mappings = made;
  *mapping = made;
  return OPENREG_OK;
}

openreg_status openreg_peer_file_map_locked(struct peer_file *file, uint64_t offset, uint64_t bytes,
                                            struct mapping **mapping) {
  uint64_t granule = OPENREG_GRANULE_BYTES;
  uint64_t start = offset / granule * granule;
  uint64_t end = (offset + bytes + granule - 1) / granule * granule;
  openreg_status status = OPENREG_OK;
  struct mapping *found = find_mapping(file, start, end - start);
  if (found == NULL)
    status = make_mapping(file, start, end - start, &found);
  if (status == OPENREG_OK) {
    found->imports++;
    *mapping = found;
  }
  return status;
}

void openreg_peer_file_unmap_locked(struct peer_file *file, struct mapping *mapping) {
  if (--mapping->imports > 0)
    return;
  struct mapping **link = &file->mappings;
  while (*link != mapping)
    link = &(*link)->next;
  *link = mapping->next;
  openreg_arena_unmap_import(mapping->address, mapping->bytes);
  free(mapping);
}
