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
 * An event that was exported or imported is the same for several processes (shared_event.h): then
 * this process's recordings are that one's, and a stamp reaches its points.
 */
#include "stream.h"

#include "shared_event.h"

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
  _Atomic(openreg_shared_event *) shared; /* NULL: this process's alone */
  /* Of timing and shared events. The lock is held for a few instructions, never while waiting for
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

static openreg_shared_event *shared_by(const openreg_event *event) {
  return atomic_load_explicit(&event->shared, memory_order_acquire);
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
  if (shared_by(event) != NULL)
    openreg_shared_event_close(shared_by(event));
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
    openreg_shared_event_end(shared_by(event), (uint32_t)recording);
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

/* A stamp that reaches a point of the shared event, behind what was submitted to the stream. */
static openreg_status share_in_queue(openreg_event *event, openreg_shared_event *shared,
                                     int number) {
  uint64_t point;
  uint32_t recording;
  openreg_status status = openreg_shared_event_begin(shared, &recording);
  if (status != OPENREG_OK)
    return status;
  pthread_mutex_lock(&event->lock);
  event->references++;
  pthread_mutex_unlock(&event->lock);
  struct task task = {.kind = TASK_STAMP, .stamp = {event, recording}};
  status = openreg_stream_submit(&openreg_streams[event->device][number], &task, &point);
  if (status == OPENREG_OK) {
    openreg_shared_event_publish(shared, recording, pack(point, number));
    return OPENREG_OK;
  }
  openreg_shared_event_end(shared, recording);
  pthread_mutex_lock(&event->lock);
  unlock_and_release(event);
  return status;
}

static openreg_status record_shared(openreg_event *event, openreg_shared_event *shared,
                                    int stream) {
  const struct timeline *timeline = &openreg_streams[event->device][stream].timeline;
  uint64_t point = openreg_timeline_end(timeline);
  if (!openreg_timeline_reached(timeline, point))
    return share_in_queue(event, shared, stream);
  return openreg_shared_event_mark(shared, pack(point, stream));
}

openreg_status openreg_event_record(openreg_event *event, int stream) {
  openreg_status status = require_event(event);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status != OPENREG_OK)
    return status;
  if (shared_by(event) != NULL)
    return record_shared(event, shared_by(event), stream);
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

/* As a shared event is recorded now: `recorded` by this process, or an arrival in another one. */
struct latest {
  uint64_t recorded;
  struct openreg_arrival arrival; /* its file is NULL when there is none */
};

/* Apart from what events of one process take. */
__attribute__((noinline)) static openreg_status query_shared(const openreg_event *event) {
  struct latest latest;
  openreg_shared_event *shared = shared_by(event);
  openreg_status status = openreg_shared_event_latest(shared, &latest.recorded, &latest.arrival);
  if (status != OPENREG_OK)
    return status;
  if (latest.arrival.file == NULL)
    return is_reached(event, latest.recorded) ? OPENREG_OK : OPENREG_NOT_READY;
  status = openreg_arrival_query(&latest.arrival);
  openreg_shared_event_let_go(shared, &latest.arrival);
  return status;
}

openreg_status openreg_event_query(const openreg_event *event) {
  openreg_status status = require_event(event);
  if (status != OPENREG_OK)
    return status;
  if (shared_by(event) != NULL)
    return query_shared(event);
  return is_reached(event, recorded_by(event)) ? OPENREG_OK : OPENREG_NOT_READY;
}

static openreg_status await_arrival(const struct openreg_arrival *arrival, int64_t deadline_ns) {
  openreg_status status = openreg_arrival_query(arrival);
  if (status == OPENREG_NOT_READY && openreg_worker_is_this_thread())
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: a function that runs on a stream must not wait for events");
  return status == OPENREG_NOT_READY ? openreg_arrival_await(arrival, deadline_ns) : status;
}

static openreg_status await_recorded(const openreg_event *event, uint64_t recorded,
                                     int64_t deadline_ns) {
  if (recorded == NEVER_RECORDED)
    return openreg_failure_take(event->device);
  return openreg_stream_await(stream_of(event, recorded), point_of(recorded), deadline_ns);
}

static openreg_status synchronize(const openreg_event *event, int64_t deadline_ns) {
  struct latest latest;
  openreg_shared_event *shared = shared_by(event);
  if (shared == NULL)
    return await_recorded(event, recorded_by(event), deadline_ns);
  openreg_status status = openreg_shared_event_latest(shared, &latest.recorded, &latest.arrival);
  if (status != OPENREG_OK)
    return status;
  if (latest.arrival.file == NULL)
    return await_recorded(event, latest.recorded, deadline_ns);
  status = await_arrival(&latest.arrival, deadline_ns);
  openreg_shared_event_let_go(shared, &latest.arrival);
  return status == OPENREG_OK ? openreg_failure_take(event->device) : status;
}

openreg_status openreg_event_synchronize(const openreg_event *event) {
  openreg_status status = require_event(event);
  return status == OPENREG_OK ? synchronize(event, OPENREG_NEVER) : status;
}

openreg_status openreg_event_synchronize_for(const openreg_event *event, uint64_t timeout_ns) {
  openreg_status status = require_event(event);
  return status == OPENREG_OK ? synchronize(event, openreg_deadline_ns(timeout_ns)) : status;
}

static openreg_status wait_for_recorded(struct stream *waiting, const openreg_event *event,
                                        uint64_t recorded) {
  if (is_reached(event, recorded))
    return OPENREG_OK;
  struct stream *awaited = stream_of(event, recorded);
  if (waiting == awaited) /* what comes later there comes later */
    return OPENREG_OK;
  struct task task = {.kind = TASK_WAIT, .wait = {&awaited->timeline, point_of(recorded)}};
  return openreg_stream_submit(waiting, &task, NULL);
}

__attribute__((noinline)) static openreg_status wait_for_shared(int device, int stream,
                                                                const openreg_event *event) {
  struct latest latest;
  openreg_shared_event *shared = shared_by(event);
  openreg_status status = openreg_shared_event_latest(shared, &latest.recorded, &latest.arrival);
  if (status != OPENREG_OK)
    return status;
  if (latest.arrival.file == NULL)
    return wait_for_recorded(&openreg_streams[device][stream], event, latest.recorded);
  status = openreg_arrival_await_on_stream(&latest.arrival, device, stream);
  openreg_shared_event_let_go(shared, &latest.arrival);
  return status;
}

openreg_status openreg_stream_wait_event(int device, int stream, const openreg_event *event) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    status = require_event(event);
  if (status != OPENREG_OK)
    return status;
  if (shared_by(event) != NULL)
    return wait_for_shared(device, stream, event);
  return wait_for_recorded(&openreg_streams[device][stream], event, recorded_by(event));
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

/* What the event was recorded for before it was shared: a later point of the same stream is as
 * good, for who waits for it waits for that. */
static openreg_status share_last_recording(openreg_event *event, openreg_shared_event *shared) {
  uint64_t recorded = recorded_by(event);
  if (is_reached(event, recorded))
    return OPENREG_OK;
  return share_in_queue(event, shared, openreg_stream_number(stream_of(event, recorded)));
}

static openreg_status share(openreg_event *event) {
  openreg_shared_event *shared;
  openreg_status status = openreg_shared_event_create(event->device, &shared);
  if (status != OPENREG_OK)
    return status;
  atomic_store_explicit(&event->shared, shared, memory_order_release);
  status = share_last_recording(event, shared);
  if (status == OPENREG_OK)
    return OPENREG_OK;
  atomic_store_explicit(&event->shared, NULL, memory_order_release);
  openreg_shared_event_close(shared);
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
  if (shared_by(event) == NULL)
    status = share(event);
  else if (openreg_shared_event_is_imported(shared_by(event)))
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the event was imported: only the process that created it exports "
                        "it");
  if (status == OPENREG_OK)
    openreg_shared_event_pack(shared_by(event), handle);
  return status;
}

openreg_status openreg_event_import(const openreg_ipc_handle *handle, openreg_event **event) {
  openreg_shared_event *shared;
  openreg_event *created = NULL;
  openreg_status status = openreg_shared_event_open(handle, &shared);
  if (status != OPENREG_OK)
    return status;
  status = create(openreg_shared_event_device(shared), false, &created);
  if (status != OPENREG_OK) {
    openreg_shared_event_close(shared);
    return status;
  }
  atomic_init(&created->shared, shared);
  *event = created;
  return OPENREG_OK;
}
