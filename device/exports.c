/* exports.c: what this process exports. The table is described in exports.h.
 *
 * One lock guards the tables of all devices. It is never held while work is given to a stream, for
 * work that is queued takes it.
 */
#define _GNU_SOURCE /* MADV_DONTFORK */
#include "exports.h"

#include "ipc_handle.h"
#include "range_lock.h"
#include "stream.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define NONE UINT32_MAX /* no entry */
enum { BUCKETS = 1024 };

/* This process's own knowledge of an entry. */
struct exported {
  uint32_t kind;
  uint32_t next; /* in its list: free entries, a bucket, events that are gone; NONE: the last */
  uint64_t nonce, offset, bytes, sent;
  struct openreg_signal signal;
};

static struct table {
  struct openreg_export *entries; /* NULL: nothing was exported yet */
  struct exported *exported;
  int file;                  /* carries this process's locks */
  uint32_t used;             /* entries from here on were never used */
  uint32_t free, gone;       /* lists: entries to use again, events that importers still have */
  uint32_t buckets[BUCKETS]; /* of memory, by offset */
} tables[OPENREG_MAX_DEVICES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- forks ----------------------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* A description that a child kept would keep this process's locks when it is gone. */
static void after_fork_in_child(void) {
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++)
    if (tables[i].entries != NULL)
      close(tables[i].file);
  pthread_mutex_unlock(&lock);
}

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_error;

static void watch_forks(void) {
  fork_error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- tables ---------------------------------------------------------------------------------- */

openreg_status openreg_exports_map(int file, uint64_t capacity, struct openreg_export **entries) {
  void *address =
      mmap(NULL, OPENREG_EXPORTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)capacity);
  if (address == MAP_FAILED)
    return openreg_fail(OPENREG_SYSTEM, "openreg: mapping a table of exports: %s", strerror(errno));
  if (madvise(address, OPENREG_EXPORTS_BYTES, MADV_DONTFORK) != 0 ||
      madvise(address, OPENREG_EXPORTS_BYTES, MADV_DONTDUMP) != 0) {
    int error = errno;
    openreg_exports_unmap(address);
    return openreg_fail(OPENREG_SYSTEM, "openreg: keeping a table of exports out of forks: %s",
                        strerror(error));
  }
  *entries = address;
  return OPENREG_OK;
}

void openreg_exports_unmap(struct openreg_export *entries) {
  munmap(entries, OPENREG_EXPORTS_BYTES);
}

static uint64_t capacity_of(int device) {
  size_t bytes;
  openreg_arena_kernel_base(device, &bytes);
  return bytes;
}

static openreg_status open_table_locked(int device, struct table *table) {
  int file = openreg_range_lock_reopen(openreg_arena_file(device));
  if (file < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: opening the memory file of device %d again: %s",
                        device, strerror(errno));
  struct exported *exported = calloc(OPENREG_EXPORT_COUNT, sizeof *exported);
  openreg_status status =
      exported == NULL
          ? openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for exports")
          : openreg_exports_map(openreg_arena_file(device), capacity_of(device), &table->entries);
  if (status != OPENREG_OK) {
    free(exported);
    close(file);
    return status;
  }
  table->exported = exported;
  table->file = file;
  table->free = table->gone = NONE;
  for (int i = 0; i < BUCKETS; i++)
    table->buckets[i] = NONE;
  return OPENREG_OK;
}

/* The lock is held when this succeeds. */
static openreg_status lock_table(int device, struct table **table) {
  openreg_status status = openreg_require_ready(device);
  if (status != OPENREG_OK)
    return status;
  pthread_once(&fork_once, watch_forks);
  if (fork_error != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: watching for forks: %s", strerror(fork_error));
  *table = &tables[device];
  pthread_mutex_lock(&lock);
  if ((*table)->entries == NULL)
    status = open_table_locked(device, *table);
  if (status != OPENREG_OK)
    pthread_mutex_unlock(&lock);
  return status;
}

static uint32_t *bucket_of(struct table *table, uint64_t offset) {
  return &table->buckets[offset / OPENREG_EXPORT_ALIGNMENT % BUCKETS];
}

static uint32_t find_memory(struct table *table, uint64_t offset) {
  uint32_t index = *bucket_of(table, offset);
  while (index != NONE && table->exported[index].offset != offset)
    index = table->exported[index].next;
  return index;
}

static void unlink_from(struct table *table, uint32_t *list, uint32_t index) {
  while (*list != index)
    list = &table->exported[*list].next;
  *list = table->exported[index].next;
}

static void push_to(struct table *table, uint32_t *list, uint32_t index) {
  table->exported[index].next = *list;
  *list = index;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Words that name an entry in a few bits hold the upper ones of its nonce (shared_event.h). */
static openreg_status draw_nonce(uint64_t *nonce) {
  do
    if (getrandom(nonce, sizeof *nonce, 0) != sizeof *nonce)
      return openreg_fail(OPENREG_SYSTEM, "openreg: drawing a random number: %s", strerror(errno));
  while (*nonce >> 32 == 0);
  return OPENREG_OK;
}

static openreg_status take_entry(struct table *table, uint32_t *index) {
  if (table->free != NONE) {
    *index = table->free;
    table->free = table->exported[*index].next;
    return OPENREG_OK;
  }
  if (table->used == OPENREG_EXPORT_COUNT)
    return openreg_fail(
        OPENREG_OUT_OF_MEMORY,
        "openreg: device %d has %zu ranges and events in other processes' use or on "
        "their way there, and can have no more",
        (int)(table - tables), OPENREG_EXPORT_COUNT);
  *index = table->used++;
  table->exported[*index].signal.shared = &table->entries[*index].signal;
  return OPENREG_OK;
}

/* The nonce comes last: with it the entry is what its handles say. */
static openreg_status fill_entry(struct table *table, uint32_t index, uint32_t kind,
                                 uint64_t offset, uint64_t bytes) {
  struct exported *exported = &table->exported[index];
  struct openreg_export *entry = &table->entries[index];
  uint64_t nonce;
  openreg_status status = draw_nonce(&nonce);
  if (status != OPENREG_OK) {
    push_to(table, &table->free, index);
    return status;
  }
  exported->kind = kind;
  exported->nonce = nonce;
  exported->offset = offset;
  exported->bytes = bytes;
  exported->sent = 0;
  atomic_store(&entry->kind, kind);
  atomic_store(&entry->offset, offset);
  atomic_store(&entry->bytes, bytes);
  atomic_store(&entry->sent, 0);
  atomic_store(&entry->received, 0);
  atomic_store(&entry->latest, 0);
  atomic_store(&entry->nonce, nonce);
  return OPENREG_OK;
}

static void clear_entry(struct table *table, uint32_t index) {
  atomic_store(&table->entries[index].nonce, 0);
  atomic_store(&table->entries[index].kind, OPENREG_EXPORT_FREE);
  table->exported[index].nonce = 0;
  table->exported[index].kind = OPENREG_EXPORT_FREE;
}

static void set_sent(struct table *table, uint32_t index, uint64_t sent) {
  table->exported[index].sent = sent;
  atomic_store(&table->entries[index].sent, sent);
}

/* Clears the entry when no importer has a lock on the range: none gets one with its handles then,
 * for who has got one looks at the nonce again. */
static bool clear_if_nobody_has(struct table *table, uint32_t index, uint64_t start,
                                uint64_t bytes) {
  if (!openreg_range_lock_try(table->file, F_WRLCK, start, bytes))
    return false;
  clear_entry(table, index);
  openreg_range_lock_release(table->file, start, bytes);
  return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void look_after_gone_events(struct table *table);

static openreg_status find_or_add_memory(struct table *table, uint64_t offset, uint64_t bytes,
                                         uint32_t *index) {
  *index = find_memory(table, offset);
  if (*index != NONE && table->exported[*index].bytes != bytes)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: exporting %zu bytes of memory of which %zu bytes are exported "
                        "already: a range is exported as it was before, or withdrawn first",
                        (size_t)bytes, (size_t)table->exported[*index].bytes);
  if (*index != NONE)
    return OPENREG_OK;
  openreg_status status = take_entry(table, index);
  if (status == OPENREG_OK)
    status = fill_entry(table, *index, OPENREG_EXPORT_MEMORY, offset, bytes);
  if (status == OPENREG_OK)
    push_to(table, bucket_of(table, offset), *index);
  return status;
}

static void free_memory_entry(struct table *table, uint32_t index) {
  struct exported *exported = &table->exported[index];
  unlink_from(table, bucket_of(table, exported->offset), index);
  push_to(table, &table->free, index);
  openreg_signal_settle(&exported->signal);
}

/* What tells importers that the work before an export is done. */
struct arrival {
  struct table *table;
  uint32_t index, point;
  uint64_t nonce;
};

static openreg_status arrive(void *data) {
  struct arrival *arrival = data;
  struct exported *exported = &arrival->table->exported[arrival->index];
  pthread_mutex_lock(&lock);
  if (exported->nonce == arrival->nonce)
    openreg_signal_end(&exported->signal, arrival->point);
  pthread_mutex_unlock(&lock);
  free(arrival);
  return OPENREG_OK;
}

static openreg_status launch_arrival(int device, int stream, const struct arrival *arrival) {
  struct arrival *launched = malloc(sizeof *launched);
  if (launched == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an export");
  *launched = *arrival;
  openreg_status status = openreg_stream_launch(device, stream, arrive, launched);
  if (status != OPENREG_OK)
    free(launched);
  return status;
}

static void take_back(const struct arrival *arrival) {
  struct table *table = arrival->table;
  pthread_mutex_lock(&lock);
  struct exported *exported = &table->exported[arrival->index];
  assert(exported->nonce == arrival->nonce && exported->sent > 0);
  openreg_signal_end(&exported->signal, arrival->point);
  set_sent(table, arrival->index, exported->sent - 1);
  if (exported->sent == 0) {
    clear_entry(table, arrival->index);
    free_memory_entry(table, arrival->index);
  }
  pthread_mutex_unlock(&lock);
}

static openreg_status add_handle_locked(struct table *table, uint64_t offset, uint64_t bytes,
                                        bool is_idle, struct arrival *arrival) {
  look_after_gone_events(table);
  openreg_status status = find_or_add_memory(table, offset, bytes, &arrival->index);
  if (status != OPENREG_OK)
    return status;
  struct exported *exported = &table->exported[arrival->index];
  if (is_idle)
    arrival->point = openreg_signal_mark(&exported->signal);
  else
    status = openreg_signal_begin(&exported->signal, &arrival->point);
  if (status == OPENREG_OK) {
    openreg_signal_publish(&exported->signal, arrival->point);
    set_sent(table, arrival->index, exported->sent + 1);
  } else if (exported->sent == 0) {
    clear_entry(table, arrival->index);
    free_memory_entry(table, arrival->index);
  }
  arrival->table = table;
  arrival->nonce = exported->nonce;
  return status;
}

static openreg_status require_exportable(void *device_address, size_t bytes, int stream,
                                         int *device, uint64_t *offset) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK && bytes == 0)
    status =
        openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: exporting 0 bytes at %p", device_address);
  if (status == OPENREG_OK)
    status = openreg_arena_check_range(device_address, bytes, device);
  if (status == OPENREG_OK && *device < 0)
    status = openreg_fail(OPENREG_INVALID_ADDRESS, "openreg: %p is not in the memory of any device",
                          device_address);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status != OPENREG_OK)
    return status;
  size_t capacity;
  void *base;
  status = openreg_arena_get(*device, &base, &capacity);
  if (status != OPENREG_OK)
    return status;
  *offset = (uint64_t)((uintptr_t)device_address - (uintptr_t)base);
  if (*offset >= capacity)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the memory at %p was imported from another process: it alone can "
                        "export it",
                        device_address);
  if (*offset % OPENREG_EXPORT_ALIGNMENT != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: exporting memory at %p: it must begin at a multiple of %d bytes",
                        device_address, (int)OPENREG_EXPORT_ALIGNMENT);
  return OPENREG_OK;
}

openreg_status openreg_ipc_export(void *device_address, size_t bytes, int stream,
                                  openreg_ipc_handle *handle) {
  int device;
  uint64_t offset;
  struct table *table;
  openreg_status status = require_exportable(device_address, bytes, stream, &device, &offset);
  if (status == OPENREG_OK)
    status = lock_table(device, &table);
  if (status != OPENREG_OK)
    return status;
  struct arrival arrival;
  bool is_idle = openreg_stream_is_idle(device, stream);
  status = add_handle_locked(table, offset, bytes, is_idle, &arrival);
  pthread_mutex_unlock(&lock);
  if (status == OPENREG_OK && !is_idle) {
    status = launch_arrival(device, stream, &arrival);
    if (status != OPENREG_OK)
      take_back(&arrival);
  }
  if (status == OPENREG_OK)
    openreg_handle_pack((struct openreg_handle){.kind = OPENREG_EXPORT_MEMORY,
                                                .device = (uint32_t)device,
                                                .index = arrival.index,
                                                .point = arrival.point,
                                                .nonce = arrival.nonce},
                        handle);
  return status;
}

static openreg_status withdraw_locked(struct table *table, uint32_t index) {
  struct exported *exported = &table->exported[index];
  if (exported->sent > atomic_load(&table->entries[index].received) ||
      !clear_if_nobody_has(table, index, exported->offset, exported->bytes))
    return OPENREG_NOT_READY;
  free_memory_entry(table, index);
  return OPENREG_OK;
}

openreg_status openreg_ipc_withdraw(void *device_address) {
  openreg_status status = openreg_require_no_bad_fork();
  int device = openreg_arena_device_of(device_address);
  void *base;
  size_t capacity;
  if (status == OPENREG_OK && device >= 0)
    status = openreg_arena_get(device, &base, &capacity);
  if (status != OPENREG_OK)
    return status;
  uint32_t index = NONE;
  pthread_mutex_lock(&lock);
  if (device >= 0 && tables[device].entries != NULL)
    index = find_memory(&tables[device], (uint64_t)((uintptr_t)device_address - (uintptr_t)base));
  if (index != NONE)
    status = withdraw_locked(&tables[device], index);
  pthread_mutex_unlock(&lock);
  if (index == NONE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: no exported memory begins at %p",
                        device_address);
  return status;
}

static void *recall_locked(struct table *table, int device, const struct openreg_handle *parts) {
  const struct exported *exported = &table->exported[parts->index];
  if (exported->kind != OPENREG_EXPORT_MEMORY || exported->nonce != parts->nonce)
    return NULL;
  size_t capacity;
  void *base;
  if (openreg_arena_get(device, &base, &capacity) != OPENREG_OK)
    return NULL;
  atomic_fetch_add(&table->entries[parts->index].received, 1);
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
  bool is_possible = parts.kind == OPENREG_EXPORT_MEMORY && parts.device < OPENREG_MAX_DEVICES &&
                     parts.index < OPENREG_EXPORT_COUNT && parts.nonce != 0;
  pthread_mutex_lock(&lock);
  struct table *table = is_possible ? &tables[parts.device] : NULL;
  if (table != NULL && table->entries != NULL)
    *device_address = recall_locked(table, (int)parts.device, &parts);
  pthread_mutex_unlock(&lock);
  if (*device_address == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the handle is refused: this process made it, and has withdrawn "
                        "what it was for");
  return OPENREG_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool free_event_entry(struct table *table, uint32_t index) {
  uint64_t capacity = capacity_of((int)(table - tables));
  if (!clear_if_nobody_has(table, index, openreg_export_position(capacity, index),
                           sizeof(struct openreg_export)))
    return false;
  push_to(table, &table->free, index);
  return true;
}

static void look_after_gone_events(struct table *table) {
  uint32_t index = table->gone;
  table->gone = NONE;
  while (index != NONE) {
    uint32_t next = table->exported[index].next;
    if (!free_event_entry(table, index))
      push_to(table, &table->gone, index);
    index = next;
  }
}

openreg_status openreg_exports_add_event(int device, uint64_t of,
                                         struct openreg_event_entry *entry) {
  struct table *table;
  uint32_t index = NONE, kind = of == 0 ? OPENREG_EXPORT_EVENT : OPENREG_EXPORT_RECORDS;
  openreg_status status = lock_table(device, &table);
  if (status != OPENREG_OK)
    return status;
  look_after_gone_events(table);
  status = take_entry(table, &index);
  if (status == OPENREG_OK)
    status = fill_entry(table, index, kind, of, 0);
  if (status == OPENREG_OK)
    *entry = (struct openreg_event_entry){.device = device,
                                          .index = index,
                                          .nonce = table->exported[index].nonce,
                                          .shared = &table->entries[index],
                                          .signal = &table->exported[index].signal};
  pthread_mutex_unlock(&lock);
  return status;
}

void openreg_exports_remove_event(const struct openreg_event_entry *entry) {
  struct table *table = &tables[entry->device];
  if (openreg_streams_are_shut_down())
    return;
  pthread_mutex_lock(&lock);
  openreg_signal_settle(entry->signal);
  atomic_store(&entry->shared->nonce, 0);
  if (!free_event_entry(table, entry->index))
    push_to(table, &table->gone, entry->index);
  pthread_mutex_unlock(&lock);
}
