/* event.c: creates, records, queries and waits for events. See event.h.
 */
#include "device/streams/event.h"
#include "device/streams/capture_internal.h"

#include <assert.h>
#include <stdlib.h>

static const struct openreg_event_sharing *sharing_of(const openreg_event *event) {
  return atomic_load_explicit(&event->sharing, memory_order_acquire);
}

openreg_status openreg_require_event(const openreg_event *event) {
  if (event == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the event is NULL");
  return openreg_require_no_bad_fork();
}

/* ---- creating and destroying ----------------------------------------------------------------- */

openreg_status openreg_event_make(int device, bool enable_timing, openreg_event **event) {
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
  return status == OPENREG_OK ? openreg_event_make(device, enable_timing, event) : status;
}

/* Releases the lock and one reference. */
static void unlock_and_release(openreg_event *event) {
  bool is_last = --event->references == 0;
  pthread_mutex_unlock(&event->lock);
  if (!is_last)
    return;
  if (sharing_of(event) != NULL)
    sharing_of(event)->close(event);
  openreg_captured_point_free(event->captured);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

int openreg_event_device(const openreg_event *event) {
  return event->device;
}

void openreg_event_add_reference(openreg_event *event) {
  pthread_mutex_lock(&event->lock);
  event->references++;
  pthread_mutex_unlock(&event->lock);
}

void openreg_event_drop_reference(openreg_event *event) {
  pthread_mutex_lock(&event->lock);
  unlock_and_release(event);
}

void openreg_event_destroy(openreg_event *event) {
  if (event == NULL)
    return;
  /* In a forked child a thread of the parent may have held the lock. The event belongs to the
   * parent. */
  if (openreg_in_bad_fork())
    return;
  openreg_event_drop_reference(event);
}

/* ---- recording ------------------------------------------------------------------------------- */

static void set_timestamp_locked(openreg_event *event, uint64_t recording) {
  if (recording > event->timestamped) {
    event->timestamped = recording;
    event->timestamp_ns = openreg_now_ns();
  }
}

void openreg_event_set_timestamp(openreg_event *event, uint64_t recording) {
  pthread_mutex_lock(&event->lock);
  if (event->timing)
    set_timestamp_locked(event, recording);
  else
    sharing_of(event)->set_timestamp(event, recording);
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
  set_timestamp_locked(event, recording);
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
  struct task task = {.kind = TASK_TIMESTAMP, .timestamp = {event, recording}};
  openreg_status status = openreg_stream_submit(stream, &task, &point);
  pthread_mutex_lock(&event->lock);
  if (status != OPENREG_OK) {
    unlock_and_release(event);
    return status;
  }
  publish_locked(event, recording, openreg_recording(point, number));
  pthread_mutex_unlock(&event->lock);
  return OPENREG_OK;
}

openreg_status openreg_event_record(openreg_event *event, int stream) {
  openreg_status status = openreg_require_event(event);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status != OPENREG_OK)
    return status;
  struct stream *recording = &openreg_streams[event->device][stream];
  if (sharing_of(event) != NULL) {
    status = openreg_stream_refuse_in_capture(
        recording, "recording an event that is shared with other processes");
    return status == OPENREG_OK ? sharing_of(event)->record(event, stream) : status;
  }
  if (openreg_stream_captures(recording))
    return openreg_capture_record(recording, event);
  const struct timeline *timeline = &recording->timeline;
  bool is_held = openreg_stream_is_owned_by_caller(recording);
  uint64_t point =
      is_held ? openreg_timeline_finished(timeline) + 1 : openreg_timeline_end(timeline);
  if (!event->timing)
    atomic_store_explicit(&event->recorded, openreg_recording(point, stream), memory_order_release);
  else if (is_held || openreg_timeline_reached(timeline, point))
    record_here(event, openreg_recording(point, stream));
  else
    return record_in_queue(event, stream);
  return OPENREG_OK;
}

/* ---- querying and waiting -------------------------------------------------------------------- */

openreg_status openreg_event_query(const openreg_event *event) {
  openreg_status status = openreg_require_event(event);
  if (status != OPENREG_OK)
    return status;
  if (sharing_of(event) != NULL)
    return sharing_of(event)->query(event);
  status = openreg_capture_refuse_event(event);
  if (status != OPENREG_OK)
    return status;
  return openreg_recording_is_reached(event, openreg_event_recorded(event)) ? OPENREG_OK
                                                                            : OPENREG_NOT_READY;
}

openreg_status openreg_recording_await(const openreg_event *event, uint64_t recorded,
                                       int64_t deadline_ns) {
  if (recorded == OPENREG_NEVER_RECORDED)
    return openreg_failure_take(event->device);
  return openreg_stream_await(openreg_recording_stream(event, recorded),
                              openreg_recording_point(recorded), deadline_ns);
}

static openreg_status synchronize(const openreg_event *event, int64_t deadline_ns) {
  if (sharing_of(event) != NULL)
    return sharing_of(event)->synchronize(event, deadline_ns);
  openreg_status status = openreg_capture_refuse_event(event);
  return status != OPENREG_OK
             ? status
             : openreg_recording_await(event, openreg_event_recorded(event), deadline_ns);
}

openreg_status openreg_event_synchronize(const openreg_event *event) {
  openreg_status status = openreg_require_event(event);
  return status == OPENREG_OK ? synchronize(event, OPENREG_NEVER) : status;
}

openreg_status openreg_event_synchronize_for(const openreg_event *event, uint64_t timeout_ns) {
  openreg_status status = openreg_require_event(event);
  return status == OPENREG_OK ? synchronize(event, openreg_deadline_ns(timeout_ns)) : status;
}

openreg_status openreg_recording_wait_on_stream(struct stream *waiting, const openreg_event *event,
                                                uint64_t recorded) {
  if (openreg_recording_is_reached(event, recorded))
    return OPENREG_OK;
  struct stream *awaited = openreg_recording_stream(event, recorded);
  if (waiting == awaited) /* later work on this stream comes after the point anyway */
    return OPENREG_OK;
  struct task task = {.kind = TASK_WAIT,
                      .wait = {&awaited->timeline, openreg_recording_point(recorded)}};
  return openreg_stream_submit(waiting, &task, NULL);
}

openreg_status openreg_stream_wait_event(int device, int stream, const openreg_event *event) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    status = openreg_require_event(event);
  if (status != OPENREG_OK)
    return status;
  struct stream *waiting = &openreg_streams[device][stream];
  if (sharing_of(event) != NULL) {
    status = openreg_stream_refuse_in_capture(
        waiting, "waiting for an event that is shared with other processes");
    return status == OPENREG_OK ? sharing_of(event)->wait_on_stream(device, stream, event) : status;
  }
  uint64_t recorded = openreg_event_recorded(event);
  if (recorded == OPENREG_CAPTURED || openreg_stream_captures(waiting))
    return openreg_capture_wait(waiting, event);
  return openreg_recording_wait_on_stream(waiting, event, recorded);
}

static openreg_status require_timing(const openreg_event *event, const char *which) {
  if (!event->timing)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the %s event was created without timing", which);
  uint64_t recorded = openreg_event_recorded(event);
  if (recorded == OPENREG_NEVER_RECORDED)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the %s event was never recorded",
                        which);
  openreg_status status = openreg_capture_refuse_event(event);
  if (status != OPENREG_OK)
    return status;
  return openreg_recording_is_reached(event, recorded) ? OPENREG_OK : OPENREG_NOT_READY;
}

static int64_t timestamp_of(const openreg_event *event) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&event->lock; /* callers see a constant event */
  pthread_mutex_lock(lock);
  int64_t timestamp_ns = event->timestamp_ns;
  assert(event->timestamped >= event->recording ||
         !openreg_recording_is_reached(event, openreg_event_recorded(event)));
  pthread_mutex_unlock(lock);
  return timestamp_ns;
}

openreg_status openreg_event_elapsed_ms(const openreg_event *start, const openreg_event *end,
                                        double *milliseconds) {
  openreg_status status = openreg_require_event(start);
  if (status == OPENREG_OK)
    status = openreg_require_event(end);
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
    *milliseconds = (double)(timestamp_of(end) - timestamp_of(start)) / 1e6;
  return status;
}
