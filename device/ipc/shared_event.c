/* shared_event.c: records shared events and finds their latest recorder. shared_event.h explains
 * the algorithm.
 *
 * Each event has a lock for this process's recordings, which workers make too. It is held for a few
 * instructions, longer only for the first recording, and never while submitting work to a stream.
 * The lock of exports is taken after it. The lock of imports guards the list of other recorders.
 */
#define _GNU_SOURCE /* nanosleep */
#include "device/ipc/shared_event.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "device/ipc/handle.h"
#include "device/process/visible_devices.h"

/* Layout of `latest`: 0 if nobody recorded the event, else
 *
 *     upper bits of the entry's nonce | slot in the ledger | index of the entry | DONE
 *
 * The nonce bits are never all 0. There are 38 of them. They distinguish entries with the same
 * index, made by successive processes in the same slot for the same event. */
enum { INDEX_SHIFT = 1, INDEX_BITS = 15, SLOT_SHIFT = INDEX_SHIFT + INDEX_BITS, SLOT_BITS = 10 };
#define DONE       ((uint64_t)1)
#define NONCE_MASK (~(uint64_t)0 << (SLOT_SHIFT + SLOT_BITS))

_Static_assert(OPENREG_EXPORT_COUNT <= 1 << INDEX_BITS, "an entry's index fits");
_Static_assert(OPENREG_MAX_PROCESSES <= 1 << SLOT_BITS, "a slot in the ledger fits");
_Static_assert(SLOT_SHIFT + SLOT_BITS <= 32, "draw_nonce makes one of the nonce bits 1");

/* Another process that recorded the event. */
struct recorder {
  struct peer_file *file; /* holds a reference */
  struct recorder *next;
};

struct openreg_shared_event {
  int device;
  int references;                /* guarded by the lock of imports, as are the recorders */
  openreg_import *import;        /* NULL: created by this process */
  struct openreg_export *shared; /* the event's entry */
  uint64_t nonce;                /* of the event's entry */
  uint64_t owner_word;           /* word of the process that created the event */
  _Atomic uint64_t own_word;     /* word of this process; 0 until it records */
  _Atomic uint64_t recorded;     /* this process's last recording, in the caller's format */
  pthread_mutex_t lock;
  struct openreg_event_entry entry; /* for this process's recordings; guarded, with its signal */
  struct recorder *recorders;
};

static uint64_t make_word(openreg_peer peer, uint32_t index, uint64_t nonce) {
  return (nonce & NONCE_MASK) | (uint64_t)peer.slot << SLOT_SHIFT | (uint64_t)index << INDEX_SHIFT;
}

static uint32_t slot_of(uint64_t word) {
  return (uint32_t)(word >> SLOT_SHIFT) & ((1 << SLOT_BITS) - 1);
}

static uint32_t index_of(uint64_t word) {
  return (uint32_t)(word >> INDEX_SHIFT) & ((1 << INDEX_BITS) - 1);
}

/* ---- creating and closing -------------------------------------------------------------------- */

static openreg_shared_event *make(int device) {
  openreg_shared_event *made = calloc(1, sizeof *made);
  if (made == NULL) {
    (void)openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an event");
    return NULL;
  }
  made->device = device;
  made->references = 1;
  pthread_mutex_init(&made->lock, NULL);
  return made;
}

static void free_all(openreg_shared_event *event) {
  pthread_mutex_destroy(&event->lock);
  free(event);
}

static void set_entry(openreg_shared_event *event, const struct openreg_event_entry *entry) {
  event->entry = *entry;
  atomic_store(&event->own_word, make_word(openreg_ledger_self(), entry->index, entry->nonce));
}

openreg_status openreg_shared_event_create(int device, openreg_shared_event **event) {
  struct openreg_event_entry entry;
  openreg_shared_event *made = make(device);
  if (made == NULL)
    return OPENREG_OUT_OF_MEMORY;
  openreg_status status = openreg_exports_add_event(device, 0, &entry);
  if (status != OPENREG_OK) {
    free_all(made);
    return status;
  }
  set_entry(made, &entry);
  made->owner_word = atomic_load(&made->own_word);
  made->nonce = entry.nonce;
  made->shared = entry.shared;
  *event = made;
  return OPENREG_OK;
}

void openreg_shared_event_pack(const openreg_shared_event *event, openreg_ipc_handle *handle) {
  openreg_handle_pack(
      (struct openreg_handle){.kind = OPENREG_EXPORT_EVENT,
                              .group_index = (uint32_t)openreg_visible_group_index(event->device),
                              .index = event->entry.index,
                              .nonce = event->nonce},
      handle);
}

static openreg_status share_import(openreg_import *import, openreg_shared_event **event) {
  openreg_status status = openreg_imports_lock();
  if (status != OPENREG_OK)
    return status;
  openreg_shared_event *shared = import->event;
  if (shared != NULL) {
    shared->references++;
  } else if ((shared = make(import->file->device)) != NULL) {
    shared->import = import;
    shared->shared = &import->file->entries[import->index];
    shared->nonce = import->nonce;
    shared->owner_word = make_word(import->file->peer, import->index, import->nonce);
    import->event = shared;
  }
  openreg_imports_unlock();
  *event = shared;
  return shared != NULL ? OPENREG_OK : OPENREG_OUT_OF_MEMORY;
}

openreg_status openreg_shared_event_open(const openreg_ipc_handle *handle,
                                         openreg_shared_event **event) {
  openreg_import *import;
  uint32_t unused;
  openreg_status status = openreg_import_open(handle, OPENREG_EXPORT_EVENT, &import, &unused);
  if (status != OPENREG_OK)
    return status;
  status = share_import(import, event);
  if (status != OPENREG_OK)
    openreg_import_close(import);
  return status;
}

static void drop_recorders_locked(openreg_shared_event *event, bool even_living) {
  for (struct recorder **link = &event->recorders, *recorder; (recorder = *link) != NULL;) {
    if (!even_living && !openreg_peer_file_has_ended_locked(recorder->file)) {
      link = &recorder->next;
      continue;
    }
    *link = recorder->next;
    openreg_peer_file_put_locked(recorder->file);
    free(recorder);
  }
}

static bool is_last_reference(openreg_shared_event *event) {
  if (openreg_imports_lock() != OPENREG_OK)
    return false;
  bool is_last = --event->references == 0;
  if (is_last)
    drop_recorders_locked(event, true);
  if (is_last && event->import != NULL)
    event->import->event = NULL;
  openreg_imports_unlock();
  return is_last;
}

void openreg_shared_event_close(openreg_shared_event *event) {
  openreg_import *import = event->import;
  if (is_last_reference(event)) {
    if (atomic_load(&event->own_word) != 0)
      openreg_exports_remove_event(&event->entry);
    free_all(event);
  }
  if (import != NULL)
    openreg_import_close(import); /* last, because the import keeps the event's entry alive */
}

bool openreg_shared_event_is_imported(const openreg_shared_event *event) {
  return event->import != NULL;
}

int openreg_shared_event_device(const openreg_shared_event *event) {
  return event->device;
}

/* ---- recording ------------------------------------------------------------------------------- */

static openreg_status require_entry_locked(openreg_shared_event *event) {
  struct openreg_event_entry entry;
  if (atomic_load(&event->own_word) != 0)
    return OPENREG_OK;
  openreg_status status = openreg_exports_add_event(event->device, event->nonce, &entry);
  if (status == OPENREG_OK)
    set_entry(event, &entry);
  return status;
}

static void publish_locked(openreg_shared_event *event, uint64_t recorded) {
  uint64_t word = atomic_load(&event->own_word);
  atomic_store(&event->recorded, recorded);
  atomic_store(&event->shared->latest,
               openreg_signal_is_done(event->entry.signal) ? word | DONE : word);
}

openreg_status openreg_shared_event_mark(openreg_shared_event *event, uint64_t recorded) {
  pthread_mutex_lock(&event->lock);
  openreg_status status = require_entry_locked(event);
  if (status == OPENREG_OK) {
    openreg_signal_mark(event->entry.signal);
    publish_locked(event, recorded);
  }
  pthread_mutex_unlock(&event->lock);
  return status;
}

openreg_status openreg_shared_event_begin(openreg_shared_event *event, uint32_t *point) {
  pthread_mutex_lock(&event->lock);
  openreg_status status = require_entry_locked(event);
  if (status == OPENREG_OK)
    status = openreg_signal_begin(event->entry.signal, point);
  pthread_mutex_unlock(&event->lock);
  return status;
}

void openreg_shared_event_publish(openreg_shared_event *event, uint32_t point, uint64_t recorded) {
  pthread_mutex_lock(&event->lock);
  if (openreg_signal_publish(event->entry.signal, point))
    publish_locked(event, recorded);
  pthread_mutex_unlock(&event->lock);
}

/* DONE is set before any waiter is woken. So a waiter that has seen the work done still finds DONE
 * if this process is killed. */
void openreg_shared_event_end(openreg_shared_event *event, uint32_t point) {
  pthread_mutex_lock(&event->lock);
  uint64_t word = atomic_load(&event->own_word);
  if (openreg_signal_is_last_pending(event->entry.signal, point))
    atomic_compare_exchange_strong(&event->shared->latest, &word, word | DONE);
  openreg_signal_end(event->entry.signal, point);
  pthread_mutex_unlock(&event->lock);
}

/* ---- finding the latest recorder ------------------------------------------------------------- */

/* Reads the entry that a word names from a peer's file. Returns false if the peer has no such
 * entry. The nonce is read again, so that the point belongs to that entry. */
static bool read_fence(const openreg_shared_event *event, struct peer_file *file, uint64_t word,
                       struct openreg_remote_fence *remote) {
  uint32_t index = index_of(word);
  if (file->peer.slot != slot_of(word) || index >= OPENREG_EXPORT_COUNT)
    return false;
  struct openreg_export *entry = &file->entries[index];
  uint64_t nonce = atomic_load(&entry->nonce);
  *remote = (struct openreg_remote_fence){
      .file = file, .signal = &entry->signal, .point = atomic_load(&entry->signal.recorded)};
  return ((nonce ^ word) & NONCE_MASK) == 0 &&
         atomic_load(&entry->kind) == OPENREG_EXPORT_RECORDINGS &&
         atomic_load(&entry->offset) == event->nonce && atomic_load(&entry->nonce) == nonce;
}

static bool find_known_recorder(const openreg_shared_event *event, uint64_t word,
                                struct openreg_remote_fence *remote) {
  for (const struct recorder *known = event->recorders; known != NULL; known = known->next)
    if (read_fence(event, known->file, word, remote))
      return true;
  return false;
}

static openreg_status fail_recorder_died(const openreg_shared_event *event) {
  return openreg_fail(OPENREG_LAUNCH_FAILURE,
                      "openreg: the process that last recorded the event ended before it finished "
                      "the work on its device %d",
                      event->device);
}

/* Words of this process and of the event's creator are recognized without opening a file. A
 * different word with one of their slots belongs to an earlier process in that slot. */
static bool can_be_other(const openreg_shared_event *event, openreg_peer peer) {
  return peer.identity != 0 && peer.slot != openreg_ledger_self().slot &&
         (event->import == NULL || peer.slot != event->import->file->peer.slot);
}

/* Returns NOT_READY if the process is alive but its file cannot be opened now. */
static openreg_status open_file_locked(const openreg_shared_event *event, uint64_t word,
                                       struct peer_file **file) {
  openreg_peer peer = openreg_ledger_peer_at(slot_of(word));
  if (!can_be_other(event, peer))
    return fail_recorder_died(event);
  openreg_status status = openreg_peer_file_get_locked(peer, event->device, file);
  if (status != OPENREG_INVALID_ARGUMENT)
    return status;
  return openreg_ledger_is_alive(peer) ? OPENREG_NOT_READY : fail_recorder_died(event);
}

static openreg_status add_recorder_locked(openreg_shared_event *event, uint64_t word,
                                          struct openreg_remote_fence *remote) {
  drop_recorders_locked(event, false);
  struct recorder *added = malloc(sizeof *added);
  if (added == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an event");
  openreg_status status = open_file_locked(event, word, &added->file);
  if (status == OPENREG_OK && !read_fence(event, added->file, word, remote)) {
    openreg_peer_file_put_locked(added->file);
    status = fail_recorder_died(event);
  }
  if (status != OPENREG_OK) {
    free(added);
    return status;
  }
  added->next = event->recorders;
  event->recorders = added;
  return OPENREG_OK;
}

/* Adds a reference to the file, which the caller must drop. */
static openreg_status find_fence(openreg_shared_event *event, uint64_t word,
                                 struct openreg_remote_fence *remote) {
  openreg_status status = openreg_imports_lock();
  if (status != OPENREG_OK)
    return status;
  if (!find_known_recorder(event, word, remote))
    status = add_recorder_locked(event, word, remote);
  if (status == OPENREG_OK)
    remote->file->references++;
  openreg_imports_unlock();
  return status;
}

/* A process that is just ending has no descriptors any more but still holds its locks for a moment.
 * Waits for that, up to a second. */
static openreg_status find_fence_with_retries(openreg_shared_event *event, uint64_t word,
                                              struct openreg_remote_fence *remote) {
  const struct timespec pause = {.tv_nsec = 1000000};
  openreg_status status = find_fence(event, word, remote);
  for (int pauses = 0; status == OPENREG_NOT_READY && pauses < 1000; pauses++) {
    nanosleep(&pause, NULL);
    status = find_fence(event, word, remote);
  }
  if (status != OPENREG_NOT_READY)
    return status;
  return openreg_fail(OPENREG_SYSTEM,
                      "openreg: cannot access the process that last recorded the event: %s",
                      openreg_last_error());
}

openreg_status openreg_shared_event_latest(openreg_shared_event *event, uint64_t *recorded,
                                           struct openreg_remote_fence *remote) {
  for (;;) {
    uint64_t word = atomic_load(&event->shared->latest);
    *recorded = 0;
    remote->file = NULL;
    if (word == 0 || (word & DONE) != 0)
      return OPENREG_OK;
    if (word == atomic_load(&event->own_word)) {
      *recorded = atomic_load(&event->recorded);
      return OPENREG_OK;
    }
    if (word == event->owner_word) {
      uint32_t point = atomic_load(&event->shared->signal.recorded);
      *remote = openreg_import_fence(event->import, point);
      return OPENREG_OK;
    }
    openreg_status status = find_fence_with_retries(event, word, remote);
    if (status != OPENREG_LAUNCH_FAILURE || atomic_load(&event->shared->latest) == word)
      return status;
  }
}

void openreg_shared_event_release_fence(const openreg_shared_event *event,
                                        const struct openreg_remote_fence *remote) {
  if (remote->file == NULL || (event->import != NULL && remote->file == event->import->file))
    return;
  if (openreg_imports_lock() != OPENREG_OK)
    return;
  openreg_peer_file_put_locked(remote->file);
  openreg_imports_unlock();
}
