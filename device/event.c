/* event.c: points on the timelines of streams, with the time at which they were reached.
 *
 * A recording is one word, stream and point, so that it can be asked and waited for while another
 * thread records again; whoever waits copies it and has no more to do with the event. That is all
 * there is to an event without timing.
 *
 * The time is stamped where the work is done. On an idle stream that is here and now; else a stamp
 * is put into the queue, and the event's point is the one behind it: an event that was reached has
 * its stamp. A stamp holds a reference, so that an event may be destroyed before it is reached.
 * Recordings are numbered, and an older one never replaces a younger, whichever is done first.
 *
 * An event that was exported has a signal that other processes wait for, of which each recording is
 * a point; on a busy stream, a stamp reaches it. An event that was imported is but such a signal of
 * another process.
 */
#include "stream.h"

#include "imports.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

/* A recording: (point + 1) * 2^STREAM_BITS + stream, or NEVER_RECORDED. */
enum { NEVER_RECORDED = 0, STREAM_BITS = 7 };

_Static_assert(OPENREG_STREAMS_PER_DEVICE <= 1 << STREAM_BITS, "a stream's number fits");

struct openreg_event {
  int device;
  bool timing;
  _Atomic uint64_t recorded;
  openreg_import *import; /* of an imported event, which has nothing of what follows */
  uint32_t export;        /* the entry of an exported one, which has a signal */
  _Atomic(struct openreg_signal *) signal; /* what it points to is guarded by the lock */
  /* Of timing and exported events. The lock is held for a few instructions, never while waiting for
   * room in a queue, and guards what is below it. */
  pthread_mutex_t lock;
  int references;     /* the owner's and one for each stamp in a queue */
  uint64_t last;      /* how many times recording began */
  uint64_t recording; /* the number of the one in `recorded` */
  uint64_t stamped;   /* the number of the one at stamp_ns */
  int64_t stamp_ns;   /* CLOCK_MONOTONIC */
};

static uint64_t pack(uint64_t point, int stream) {
  return (point + 1) << STREAM_BITS | (uint64_t)stream;
}

static struct stream *stream_of(const openreg_event *event, uint64_t recorded) {
  return &openreg_streams[event->device][recorded & ((1 << STREAM_BITS) - 1)];
}

static uint64_t point_of(uint64_t recorded) {
  return (recorded >> STREAM_BITS) - 1;
}

static uint64_t recorded_by(const openreg_event *event) {
  return atomic_load_explicit(&event->recorded, memory_order_acquire);
}

static struct openreg_signal *signal_of(const openreg_event *event) {
  return atomic_load_explicit(&event->signal, memory_order_acquire);
}

static bool is_reached(const openreg_event *event, uint64_t recorded) {
  return recorded == NEVER_RECORDED ||
         openreg_timeline_reached(&stream_of(event, recorded)->timeline, point_of(recorded));
}

static openreg_status require_event(const openreg_event *event) {
  if (event == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the event is NULL");
  return openreg_require_no_bad_fork();
}

/* ---- life ------------------------------------------------------------------------------------ */

static openreg_status create(int device, bool enable_timing, openreg_event **event) {
  openreg_event *created = calloc(1, sizeof *created);
  if (created == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an event");
  created->device = device;
  created->timing = enable_timing;
  created->references = 1;
  pthread_mutex_init(&created->lock, NULL);
  *event = created;
  return OPENREG_OK;
}

openreg_status openreg_event_create(int device, bool enable_timing, openreg_event **event) {
  openreg_status status = openreg_require_device(device);
  return status == OPENREG_OK ? create(device, enable_timing, event) : status;
}

/* Gives the lock back, and one reference with it. */
static void unlock_and_release(openreg_event *event) {
  bool is_last = --event->references == 0;
  pthread_mutex_unlock(&event->lock);
  if (!is_last)
    return;
  if (event->import != NULL)
    openreg_import_close(event->import);
  if (signal_of(event) != NULL)
    openreg_exports_remove_event(event->device, event->export);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

void openreg_event_destroy(openreg_event *event) {
  if (event == NULL)
    return;
  /* In a forked child a thread of the parent may have had the lock. The event is the parent's. */
  if (openreg_in_bad_fork())
    return;
  pthread_mutex_lock(&event->lock);
  unlock_and_release(event);
}

/* ---- recording ------------------------------------------------------------------------------- */

static void stamp_locked(openreg_event *event, uint64_t recording) {
  if (recording > event->stamped) {
    event->stamped = recording;
    event->stamp_ns = openreg_now_ns();
  }
}

/* What was dropped by shutting down was not done: other processes are not told that it was. */
void openreg_event_stamp(openreg_event *event, uint64_t recording) {
  pthread_mutex_lock(&event->lock);
  if (event->timing)
    stamp_locked(event, recording);
  else if (!openreg_streams_are_shut_down())
    openreg_signal_end(signal_of(event), (uint32_t)recording);
  unlock_and_release(event);
}

static void publish_locked(openreg_event *event, uint64_t recording, uint64_t recorded) {
  if (recording > event->recording) {
    event->recording = recording;
    atomic_store_explicit(&event->recorded, recorded, memory_order_release);
  }
}

static void record_here(openreg_event *event, uint64_t recorded) {
  pthread_mutex_lock(&event->lock);
  uint64_t recording = ++event->last;
  stamp_locked(event, recording);
  publish_locked(event, recording, recorded);
  pthread_mutex_unlock(&event->lock);
}

static openreg_status record_in_queue(openreg_event *event, int number) {
  struct stream *stream = &openreg_streams[event->device][number];
  uint64_t point;
  pthread_mutex_lock(&event->lock);
  uint64_t recording = ++event->last;
  event->references++;
  pthread_mutex_unlock(&event->lock);
  struct task task = {.kind = TASK_STAMP, .stamp = {event, recording}};
  openreg_status status = openreg_stream_submit(stream, &task, &point);
  pthread_mutex_lock(&event->lock);
  if (status != OPENREG_OK) {
    unlock_and_release(event);
    return status;
  }
  publish_locked(event, recording, pack(point, number));
  pthread_mutex_unlock(&event->lock);
  return OPENREG_OK;
}

/* A stamp that reaches a point of the signal, behind what was submitted to the stream. The point
 * is let known when its work is in the queue, so that nobody waits for what is not. */
static openreg_status signal_in_queue(openreg_event *event, int number) {
  struct openreg_signal *signal = signal_of(event);
  uint64_t point;
  uint32_t signalled;
  pthread_mutex_lock(&event->lock);
  uint64_t recording = ++event->last;
  openreg_status status = openreg_signal_begin(signal, &signalled);
  event->references += status == OPENREG_OK;
  pthread_mutex_unlock(&event->lock);
  if (status != OPENREG_OK)
    return status;
  struct task task = {.kind = TASK_STAMP, .stamp = {event, signalled}};
  status = openreg_stream_submit(&openreg_streams[event->device][number], &task, &point);
  pthread_mutex_lock(&event->lock);
  if (status != OPENREG_OK) {
    openreg_signal_end(signal, signalled);
    unlock_and_release(event);
    return status;
  }
  publish_locked(event, recording, pack(point, number));
  openreg_signal_publish(signal, signalled);
  pthread_mutex_unlock(&event->lock);
  return OPENREG_OK;
}

static void signal_here(openreg_event *event, uint64_t recorded) {
  pthread_mutex_lock(&event->lock);
  uint64_t recording = ++event->last;
  publish_locked(event, recording, recorded);
  openreg_signal_mark(signal_of(event));
  pthread_mutex_unlock(&event->lock);
}

static openreg_status record_exported(openreg_event *event, int stream) {
  const struct stream *recording = &openreg_streams[event->device][stream];
  uint64_t point = openreg_timeline_end(&recording->timeline);
  if (!openreg_timeline_reached(&recording->timeline, point))
    return signal_in_queue(event, stream);
  signal_here(event, pack(point, stream));
  return OPENREG_OK;
}

openreg_status openreg_event_record(openreg_event *event, int stream) {
  openreg_status status = require_event(event);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status != OPENREG_OK)
    return status;
  if (event->import != NULL)
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: the event was imported: only the process that created it records "
                        "it");
  if (signal_of(event) != NULL)
    return record_exported(event, stream);
  const struct stream *recording = &openreg_streams[event->device][stream];
  const struct timeline *timeline = &recording->timeline;
  bool is_held = openreg_stream_is_held(recording);
  uint64_t point =
      is_held ? openreg_timeline_finished(timeline) + 1 : openreg_timeline_end(timeline);
  if (!event->timing)
    atomic_store_explicit(&event->recorded, pack(point, stream), memory_order_release);
  else if (is_held || openreg_timeline_reached(timeline, point))
    record_here(event, pack(point, stream));
  else
    return record_in_queue(event, stream);
  return OPENREG_OK;
}

/* ---- asking and waiting ---------------------------------------------------------------------- */

static uint32_t point_of_import(const openreg_event *event) {
  return atomic_load(&openreg_import_signal(event->import)->recorded);
}

openreg_status openreg_event_query(const openreg_event *event) {
  openreg_status status = require_event(event);
  if (status != OPENREG_OK)
    return status;
  if (event->import != NULL)
    return openreg_import_query(event->import, point_of_import(event));
  return is_reached(event, recorded_by(event)) ? OPENREG_OK : OPENREG_NOT_READY;
}

static openreg_status synchronize_import(const openreg_event *event, int64_t deadline_ns) {
  uint32_t point = point_of_import(event);
  openreg_status status = openreg_import_query(event->import, point);
  if (status == OPENREG_NOT_READY && openreg_worker_is_this_thread())
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: a function that runs on a stream must not wait for events");
  if (status == OPENREG_NOT_READY)
    status = openreg_import_await(event->import, point, deadline_ns);
  return status == OPENREG_OK ? openreg_failure_take(event->device) : status;
}

static openreg_status synchronize(const openreg_event *event, int64_t deadline_ns) {
  if (event->import != NULL)
    return synchronize_import(event, deadline_ns);
  uint64_t recorded = recorded_by(event);
  if (recorded == NEVER_RECORDED)
    return openreg_failure_take(event->device);
  return openreg_stream_await(stream_of(event, recorded), point_of(recorded), deadline_ns);
}

openreg_status openreg_event_synchronize(const openreg_event *event) {
  openreg_status status = require_event(event);
  return status == OPENREG_OK ? synchronize(event, OPENREG_NEVER) : status;
}

openreg_status openreg_event_synchronize_for(const openreg_event *event, uint64_t timeout_ns) {
  openreg_status status = require_event(event);
  return status == OPENREG_OK ? synchronize(event, openreg_deadline_ns(timeout_ns)) : status;
}

openreg_status openreg_stream_wait_event(int device, int stream, const openreg_event *event) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    status = require_event(event);
  if (status != OPENREG_OK)
    return status;
  if (event->import != NULL)
    return openreg_import_await_on_stream(event->import, point_of_import(event), device, stream);
  uint64_t recorded = recorded_by(event);
  if (is_reached(event, recorded))
    return OPENREG_OK;
  struct stream *waiting = &openreg_streams[device][stream];
  struct stream *awaited = stream_of(event, recorded);
  if (waiting == awaited) /* what comes later there comes later */
    return OPENREG_OK;
  struct task task = {.kind = TASK_WAIT, .wait = {&awaited->timeline, point_of(recorded)}};
  return openreg_stream_submit(waiting, &task, NULL);
}

static openreg_status require_timing(const openreg_event *event, const char *which) {
  if (!event->timing)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the %s event was created without timing", which);
  uint64_t recorded = recorded_by(event);
  if (recorded == NEVER_RECORDED)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the %s event was never recorded",
                        which);
  return is_reached(event, recorded) ? OPENREG_OK : OPENREG_NOT_READY;
}

static int64_t stamp_of(const openreg_event *event) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&event->lock; /* const is what the caller sees */
  pthread_mutex_lock(lock);
  int64_t stamp_ns = event->stamp_ns;
  assert(event->stamped >= event->recording || !is_reached(event, recorded_by(event)));
  pthread_mutex_unlock(lock);
  return stamp_ns;
}

openreg_status openreg_event_elapsed_ms(const openreg_event *start, const openreg_event *end,
                                        double *milliseconds) {
  openreg_status status = require_event(start);
  if (status == OPENREG_OK)
    status = require_event(end);
  if (status != OPENREG_OK)
    return status;
  if (start->device != end->device)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the events belong to different devices, %d and %d", start->device,
                        end->device);
  status = require_timing(start, "first");
  if (status == OPENREG_OK || status == OPENREG_NOT_READY) {
    openreg_status of_end = require_timing(end, "second");
    status = of_end == OPENREG_OK ? status : of_end;
  }
  if (status == OPENREG_OK)
    *milliseconds = (double)(stamp_of(end) - stamp_of(start)) / 1e6;
  return status;
}

/* ---- other processes ------------------------------------------------------------------------- */

/* What the event was recorded for before it had a signal: a later point of the same stream is as
 * good, for who waits for it waits for that. */
static openreg_status signal_last_recording(openreg_event *event) {
  uint64_t recorded = recorded_by(event);
  if (is_reached(event, recorded))
    return OPENREG_OK;
  return signal_in_queue(event, openreg_stream_number(stream_of(event, recorded)));
}

static openreg_status give_signal(openreg_event *event) {
  struct openreg_signal *signal;
  openreg_status status = openreg_exports_add_event(event->device, &event->export, &signal);
  if (status != OPENREG_OK)
    return status;
  atomic_store_explicit(&event->signal, signal, memory_order_release);
  status = signal_last_recording(event);
  if (status == OPENREG_OK)
    return OPENREG_OK;
  atomic_store_explicit(&event->signal, NULL, memory_order_release);
  openreg_exports_remove_event(event->device, event->export);
  return status;
}

openreg_status openreg_event_export(openreg_event *event, openreg_ipc_handle *handle) {
  openreg_status status = require_event(event);
  if (status != OPENREG_OK)
    return status;
  if (event->timing)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the event was created with timing: only one without can be "
                        "exported");
  if (event->import != NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the event was imported: only the process that created it exports "
                        "it");
  if (signal_of(event) == NULL)
    status = give_signal(event);
  if (status == OPENREG_OK)
    openreg_exports_pack_event(event->device, event->export, handle);
  return status;
}

openreg_status openreg_event_import(const openreg_ipc_handle *handle, openreg_event **event) {
  openreg_import *import;
  openreg_event *created = NULL;
  uint32_t unused;
  openreg_status status = openreg_import_open(handle, OPENREG_EXPORT_EVENT, &import, &unused);
  if (status != OPENREG_OK)
    return status;
  status = create(import->file->device, false, &created);
  if (status != OPENREG_OK) {
    openreg_import_close(import);
    return status;
  }
  created->import = import;
  *event = created;
  return OPENREG_OK;
}
