/* export_table.c: export tables and their entries. See export_table.h. */
#define _GNU_SOURCE /* MADV_DONTFORK */
#include "device/ipc/export_table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/forks.h"
#include "base/proc.h"
#include "base/range_lock.h"
#include "device/process/state.h"

struct export_table openreg_export_tables[OPENREG_MAX_DEVICES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- forks ----------------------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* A child that kept the file's description would also keep this process's locks after its end. */
static void after_fork_in_child(void) {
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++)
    if (openreg_export_tables[i].entries != NULL)
      close(openreg_export_tables[i].file);
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_handlers fork_handlers =
    OPENREG_FORK_HANDLERS(before_fork, after_fork_in_parent, after_fork_in_child);

/* ---- tables ---------------------------------------------------------------------------------- */

openreg_status openreg_exports_map(int file, uint64_t arena_bytes,
                                   struct openreg_export **entries) {
  void *address = mmap(NULL, OPENREG_EXPORTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                       (off_t)arena_bytes);
  if (address == MAP_FAILED)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot map an export table: %s", strerror(errno));
  if (madvise(address, OPENREG_EXPORTS_BYTES, MADV_DONTFORK) != 0 ||
      madvise(address, OPENREG_EXPORTS_BYTES, MADV_DONTDUMP) != 0) {
    int error = errno;
    openreg_exports_unmap(address);
    return openreg_fail(OPENREG_SYSTEM,
                        "openreg: cannot exclude an export table from forked processes: %s",
                        strerror(error));
  }
  *entries = address;
  return OPENREG_OK;
}

void openreg_exports_unmap(struct openreg_export *entries) {
  munmap(entries, OPENREG_EXPORTS_BYTES);
}

static uint64_t arena_bytes_of(int device) {
  size_t bytes;
  openreg_arena_kernel_base(device, &bytes);
  return bytes;
}

static openreg_status open_locked(int device, struct export_table *table) {
  int file = openreg_proc_reopen(openreg_arena_file(device));
  if (file < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot reopen the memory file of device %d: %s",
                        device, openreg_proc_error(errno));
  struct exported *exported = calloc(OPENREG_EXPORT_COUNT, sizeof *exported);
  openreg_status status =
      exported == NULL ? openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for exports")
                       : openreg_exports_map(openreg_arena_file(device), arena_bytes_of(device),
                                             &table->entries);
  if (status != OPENREG_OK) {
    free(exported);
    close(file);
    return status;
  }
  table->exported = exported;
  table->file = file;
  table->free = table->destroyed = OPENREG_NO_EXPORT;
  for (int i = 0; i < OPENREG_EXPORT_BUCKETS; i++)
    table->buckets[i] = OPENREG_NO_EXPORT;
  return OPENREG_OK;
}

/* On success, the caller holds the lock. */
openreg_status openreg_export_table_lock(int device, struct export_table **table) {
  openreg_status status = openreg_require_context(device);
  if (status != OPENREG_OK)
    return status;
  status = openreg_forks_register(&fork_handlers);
  if (status != OPENREG_OK)
    return status;
  *table = &openreg_export_tables[device];
  pthread_mutex_lock(&lock);
  if ((*table)->entries == NULL)
    status = open_locked(device, *table);
  if (status != OPENREG_OK)
    pthread_mutex_unlock(&lock);
  return status;
}

void openreg_export_unlink(struct export_table *table, uint32_t *list, uint32_t index) {
  while (*list != index)
    list = &table->exported[*list].next;
  *list = table->exported[index].next;
}

void openreg_export_push(struct export_table *table, uint32_t *list, uint32_t index) {
  table->exported[index].next = *list;
  *list = index;
}

void openreg_exports_lock(void) {
  pthread_mutex_lock(&lock);
}

void openreg_exports_unlock(void) {
  pthread_mutex_unlock(&lock);
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Words that identify an entry in a few bits contain the upper bits of its nonce (shared_event.h),
 * so those must not all be 0. */
static openreg_status draw_nonce(uint64_t *nonce) {
  do
    if (getrandom(nonce, sizeof *nonce, 0) != sizeof *nonce)
      return openreg_fail(OPENREG_SYSTEM, "openreg: cannot get a random number: %s",
                          strerror(errno));
  while (*nonce >> 32 == 0);
  return OPENREG_OK;
}

openreg_status openreg_export_allocate(struct export_table *table, uint32_t *index) {
  if (table->free != OPENREG_NO_EXPORT) {
    *index = table->free;
    table->free = table->exported[*index].next;
    return OPENREG_OK;
  }
  if (table->used == OPENREG_EXPORT_COUNT)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: device %d has %zu exported ranges and events, the maximum",
                        (int)(table - openreg_export_tables), OPENREG_EXPORT_COUNT);
  *index = table->used++;
  table->exported[*index].signal.shared = &table->entries[*index].signal;
  return OPENREG_OK;
}

/* The nonce is stored last. From then on the entry is valid for its handles. */
openreg_status openreg_export_fill(struct export_table *table, uint32_t index, uint32_t kind,
                                   uint64_t offset, uint64_t bytes) {
  struct exported *exported = &table->exported[index];
  struct openreg_export *entry = &table->entries[index];
  uint64_t nonce;
  openreg_status status = draw_nonce(&nonce);
  if (status != OPENREG_OK) {
    openreg_export_push(table, &table->free, index);
    return status;
  }
  exported->kind = kind;
  exported->nonce = nonce;
  exported->offset = offset;
  exported->bytes = bytes;
  exported->handles_made = 0;
  atomic_store(&entry->kind, kind);
  atomic_store(&entry->offset, offset);
  atomic_store(&entry->bytes, bytes);
  atomic_store(&entry->handles_made, 0);
  atomic_store(&entry->handles_opened, 0);
  atomic_store(&entry->latest, 0);
  atomic_store(&entry->nonce, nonce);
  return OPENREG_OK;
}

void openreg_export_clear(struct export_table *table, uint32_t index) {
  atomic_store(&table->entries[index].nonce, 0);
  atomic_store(&table->entries[index].kind, OPENREG_EXPORT_FREE);
  table->exported[index].nonce = 0;
  table->exported[index].kind = OPENREG_EXPORT_FREE;
}

bool openreg_export_clear_if_unused(struct export_table *table, uint32_t index, uint64_t start,
                                    uint64_t bytes) {
  if (!openreg_range_lock_try(table->file, F_WRLCK, start, bytes))
    return false;
  openreg_export_clear(table, index);
  openreg_range_lock_release(table->file, start, bytes);
  return true;
}

bool openreg_export_free_event(struct export_table *table, uint32_t index) {
  uint64_t arena_bytes = arena_bytes_of((int)(table - openreg_export_tables));
  if (!openreg_export_clear_if_unused(table, index, openreg_export_position(arena_bytes, index),
                                      sizeof(struct openreg_export)))
    return false;
  openreg_export_push(table, &table->free, index);
  return true;
}

void openreg_exports_free_destroyed_events(struct export_table *table) {
  uint32_t index = table->destroyed;
  table->destroyed = OPENREG_NO_EXPORT;
  while (index != OPENREG_NO_EXPORT) {
    uint32_t next = table->exported[index].next;
    if (!openreg_export_free_event(table, index))
      openreg_export_push(table, &table->destroyed, index);
    index = next;
  }
}
