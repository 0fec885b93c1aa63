/* shared_event.c: recording an event that several processes have, and finding who did so last. The
 * argument is in shared_event.h.
 *
 * A lock of the event's guards what this process records, which workers do too. It is held for a
 * few instructions, but on the first record, and never while work is given to a stream; that of
 * exports is taken after it. The other recorders are guarded by the lock of imports.
 */
#define _GNU_SOURCE /* nanosleep */
#include "device/ipc/shared_event.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "device/ipc/handle.h"
#include "device/process/visible_devices.h"

/* latest: 0 when nobody recorded the event, else the recorder's
 *
 *     upper bits of the entry's nonce | place in the ledger | index of the entry | whether all done
 *
 * The nonce's are never all 0. 38 bits of it tell entries of one index apart that one place in the
 * ledger has had for one event. */
enum { INDEX_SHIFT = 1, INDEX_BITS = 15, PLACE_SHIFT = INDEX_SHIFT + INDEX_BITS, PLACE_BITS = 10 };
#define DONE       ((uint64_t)1)
#define NONCE_MASK (~(uint64_t)0 << (PLACE_SHIFT + PLACE_BITS))

_Static_assert(OPENREG_EXPORT_COUNT <= 1 << INDEX_BITS, "an entry's index fits");
_Static_assert(OPENREG_MAX_PROCESSES <= 1 << PLACE_BITS, "a place in the ledger fits");
_Static_assert(PLACE_SHIFT + PLACE_BITS <= 32, "draw_nonce sets one of the nonce's bits");

/* Another process that recorded the event. */
struct recorder {
  struct peer_file *file; /* with a reference */
  struct recorder *next;
};

struct openreg_shared_event {
  int device;
  int references;                /* guarded by the lock of imports, as the recorders */
  openreg_import *import;        /* NULL: the event is this process's own */
  struct openreg_export *shared; /* the event's entry */
  uint64_t nonce;                /* its */
  uint64_t home;                 /* the word of the process whose event it is */
  _Atomic uint64_t own;          /* this process's; 0 until it records */
  _Atomic uint64_t recorded;     /* its last record, as the caller means it */
  pthread_mutex_t lock;
  struct openreg_event_entry entry; /* where it records; guarded, with what its signal points to */
  struct recorder *recorders;
};

static uint64_t make_word(openreg_peer peer, uint32_t index, uint64_t nonce) {
  return (nonce & NONCE_MASK) | (uint64_t)peer.slot << PLACE_SHIFT | (uint64_t)index << INDEX_SHIFT;
}

static uint32_t place_of(uint64_t word) {
  return (uint32_t)(word >> PLACE_SHIFT) & ((1 << PLACE_BITS) - 1);
}

static uint32_t index_of(uint64_t word) {
  return (uint32_t)(word >> INDEX_SHIFT) & ((1 << INDEX_BITS) - 1);
}

/* ---- life ------------------------------------------------------------------------------------ */

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
  atomic_store(&event->own, make_word(openreg_ledger_self(), entry->index, entry->nonce));
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
  made->home = atomic_load(&made->own);
  made->nonce = entry.nonce;
  made->shared = entry.shared;
  *event = made;
  return OPENREG_OK;
}

void openreg_shared_event_pack(const openreg_shared_event *event, openreg_ipc_handle *handle) {
  openreg_handle_pack(
      (struct openreg_handle){.kind = OPENREG_EXPORT_EVENT,
                              .number = (uint32_t)openreg_visible_number(event->device),
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
    shared->home = make_word(import->file->peer, import->index, import->nonce);
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
    if (atomic_load(&event->own) != 0)
      openreg_exports_remove_event(&event->entry);
    free_all(event);
  }
  if (import != NULL)
    openreg_import_close(import); /* last: it is what keeps the event's entry */
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
  if (atomic_load(&event->own) != 0)
    return OPENREG_OK;
  openreg_status status = openreg_exports_add_event(event->device, event->nonce, &entry);
  if (status == OPENREG_OK)
    set_entry(event, &entry);
  return status;
}

static void publish_locked(openreg_shared_event *event, uint64_t recorded) {
  uint64_t word = atomic_load(&event->own);
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

/* That all is done is said before anybody is woken: what one has seen done, nobody misses when this
 * process is killed. */
void openreg_shared_event_end(openreg_shared_event *event, uint32_t point) {
  pthread_mutex_lock(&event->lock);
  uint64_t word = atomic_load(&event->own);
  if (openreg_signal_is_last_undone(event->entry.signal, point))
    atomic_compare_exchange_strong(&event->shared->latest, &word, word | DONE);
  openreg_signal_end(event->entry.signal, point);
  pthread_mutex_unlock(&event->lock);
}

/* ---- who recorded last ----------------------------------------------------------------------- */

/* Reads the entry that a word names in a file of the process in that place: false when it has no
 * such entry. The nonce is read again, so that the point is of that entry. */
static bool read_remote_point(const openreg_shared_event *event, struct peer_file *file,
                              uint64_t word, struct openreg_remote_point *remote) {
  uint32_t index = index_of(word);
  if (file->peer.slot != place_of(word) || index >= OPENREG_EXPORT_COUNT)
    return false;
  struct openreg_export *entry = &file->entries[index];
  uint64_t nonce = atomic_load(&entry->nonce);
  *remote = (struct openreg_remote_point){
      .file = file, .signal = &entry->signal, .point = atomic_load(&entry->signal.recorded)};
  return ((nonce ^ word) & NONCE_MASK) == 0 &&
         atomic_load(&entry->kind) == OPENREG_EXPORT_RECORDS &&
         atomic_load(&entry->offset) == event->nonce && atomic_load(&entry->nonce) == nonce;
}

static bool find_known(const openreg_shared_event *event, uint64_t word,
                       struct openreg_remote_point *remote) {
  for (const struct recorder *known = event->recorders; known != NULL; known = known->next)
    if (read_remote_point(event, known->file, word, remote))
      return true;
  return false;
}

static openreg_status fail_gone(const openreg_shared_event *event) {
  return openreg_fail(OPENREG_LAUNCH_FAILURE,
                      "openreg: the process that recorded the event last has ended before the work "
                      "on its device %d was done",
                      event->device);
}

/* Words of this process and of the event's own are known without looking: another entry of theirs
 * is of one that had their place before. */
static bool can_be_other(const openreg_shared_event *event, openreg_peer peer) {
  return peer.identity != 0 && peer.slot != openreg_ledger_self().slot &&
         (event->import == NULL || peer.slot != event->import->file->peer.slot);
}

/* NOT_READY: the process lives, and its file cannot be opened now. */
static openreg_status open_file_locked(const openreg_shared_event *event, uint64_t word,
                                       struct peer_file **file) {
  openreg_peer peer = openreg_ledger_peer_at(place_of(word));
  if (!can_be_other(event, peer))
    return fail_gone(event);
  openreg_status status = openreg_peer_file_get_locked(peer, event->device, file);
  if (status != OPENREG_INVALID_ARGUMENT)
    return status;
  return openreg_ledger_is_alive(peer) ? OPENREG_NOT_READY : fail_gone(event);
}

static openreg_status meet_locked(openreg_shared_event *event, uint64_t word,
                                  struct openreg_remote_point *remote) {
  drop_recorders_locked(event, false);
  struct recorder *met = malloc(sizeof *met);
  if (met == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an event");
  openreg_status status = open_file_locked(event, word, &met->file);
  if (status == OPENREG_OK && !read_remote_point(event, met->file, word, remote)) {
    openreg_peer_file_put_locked(met->file);
    status = fail_gone(event);
  }
  if (status != OPENREG_OK) {
    free(met);
    return status;
  }
  met->next = event->recorders;
  event->recorders = met;
  return OPENREG_OK;
}

/* With a reference to the file, which the caller has to give back. */
static openreg_status find_remote_point(openreg_shared_event *event, uint64_t word,
                                        struct openreg_remote_point *remote) {
  openreg_status status = openreg_imports_lock();
  if (status != OPENREG_OK)
    return status;
  if (!find_known(event, word, remote))
    status = meet_locked(event, word, remote);
  if (status == OPENREG_OK)
    remote->file->references++;
  openreg_imports_unlock();
  return status;
}

/* A process that is just ending has no descriptors any more, and for a moment still its locks: that
 * is waited for. A second is more than a moment. */
static openreg_status find_remote_point_patiently(openreg_shared_event *event, uint64_t word,
                                                  struct openreg_remote_point *remote) {
  const struct timespec pause = {.tv_nsec = 1000000};
  openreg_status status = find_remote_point(event, word, remote);
  for (int pauses = 0; status == OPENREG_NOT_READY && pauses < 1000; pauses++) {
    nanosleep(&pause, NULL);
    status = find_remote_point(event, word, remote);
  }
  if (status != OPENREG_NOT_READY)
    return status;
  return openreg_fail(OPENREG_SYSTEM,
                      "openreg: the event was recorded last by a process that cannot be asked: %s",
                      openreg_last_error());
}

openreg_status openreg_shared_event_latest(openreg_shared_event *event, uint64_t *recorded,
                                           struct openreg_remote_point *remote) {
  for (;;) {
    uint64_t word = atomic_load(&event->shared->latest);
    *recorded = 0;
    remote->file = NULL;
    if (word == 0 || (word & DONE) != 0)
      return OPENREG_OK;
    if (word == atomic_load(&event->own)) {
      *recorded = atomic_load(&event->recorded);
      return OPENREG_OK;
    }
    if (word == event->home) {
      uint32_t point = atomic_load(&event->shared->signal.recorded);
      *remote = openreg_import_point(event->import, point);
      return OPENREG_OK;
    }
    openreg_status status = find_remote_point_patiently(event, word, remote);
    if (status != OPENREG_LAUNCH_FAILURE || atomic_load(&event->shared->latest) == word)
      return status;
  }
}

void openreg_shared_event_let_go(const openreg_shared_event *event,
                                 const struct openreg_remote_point *remote) {
  if (remote->file == NULL || (event->import != NULL && remote->file == event->import->file))
    return;
  if (openreg_imports_lock() != OPENREG_OK)
    return;
  openreg_peer_file_put_locked(remote->file);
  openreg_imports_unlock();
}
