/* event_exchange.c: events that several processes share: export, import, and their operations.
 *
 * Recordings by this process are points of the shared event (shared_event.h). If the recorded work
 * has not finished, the recording begins a point there, and a timestamp task behind the work ends
 * it.
 */
#include "device/ipc/shared_event.h"

#include "base/futex.h"
#include "device/streams/event.h"

/* ---- recording ------------------------------------------------------------------------------- */

/* Submits a timestamp task, which will reach a new point of the shared event behind the stream's
 * work. */
static openreg_status record_in_queue(openreg_event *event, int number) {
  openreg_shared_event *shared = event->shared;
  uint64_t point;
  uint32_t recording;
  openreg_status status = openreg_shared_event_begin(shared, &recording);
  if (status != OPENREG_OK)
    return status;
  openreg_event_add_reference(event);
  struct task task = {.kind = TASK_TIMESTAMP, .timestamp = {event, recording}};
  status = openreg_stream_submit(&openreg_streams[event->device][number], &task, &point);
  if (status == OPENREG_OK) {
    openreg_shared_event_publish(shared, recording, openreg_recording(point, number));
    return OPENREG_OK;
  }
  openreg_shared_event_end(shared, recording);
  openreg_event_drop_reference(event);
  return status;
}

static openreg_status record(openreg_event *event, int stream) {
  const struct timeline *timeline = &openreg_streams[event->device][stream].timeline;
  uint64_t point = openreg_timeline_end(timeline);
  if (!openreg_timeline_reached(timeline, point))
    return record_in_queue(event, stream);
  return openreg_shared_event_mark(event->shared, openreg_recording(point, stream));
}

/* ---- querying and waiting -------------------------------------------------------------------- */

/* The latest recording of a shared event: either `recorded` by this process, or a fence of another
 * one. */
struct latest_recording {
  uint64_t recorded;
  struct openreg_remote_fence remote; /* its file is NULL if there is none */
};

static openreg_status query(const openreg_event *event) {
  struct latest_recording latest;
  openreg_shared_event *shared = event->shared;
  openreg_status status = openreg_shared_event_latest(shared, &latest.recorded, &latest.remote);
  if (status != OPENREG_OK)
    return status;
  if (latest.remote.file == NULL)
    return openreg_recording_is_reached(event, latest.recorded) ? OPENREG_OK : OPENREG_NOT_READY;
  status = openreg_remote_fence_query(&latest.remote);
  openreg_shared_event_release_fence(shared, &latest.remote);
  return status;
}

static openreg_status await_remote_fence(const struct openreg_remote_fence *remote,
                                         int64_t deadline_ns) {
  openreg_status status = openreg_remote_fence_query(remote);
  if (status == OPENREG_NOT_READY && openreg_worker_is_this_thread())
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: cannot wait for an event from inside work that runs on a stream");
  return status == OPENREG_NOT_READY ? openreg_remote_fence_await(remote, deadline_ns) : status;
}

static openreg_status synchronize(const openreg_event *event, int64_t deadline_ns) {
  struct latest_recording latest;
  openreg_shared_event *shared = event->shared;
  openreg_status status = openreg_shared_event_latest(shared, &latest.recorded, &latest.remote);
  if (status != OPENREG_OK)
    return status;
  if (latest.remote.file == NULL)
    return openreg_recording_await(event, latest.recorded, deadline_ns);
  status = await_remote_fence(&latest.remote, deadline_ns);
  openreg_shared_event_release_fence(shared, &latest.remote);
  return status == OPENREG_OK ? openreg_failure_take(event->device) : status;
}

static openreg_status wait_on_stream(int device, int stream, const openreg_event *event) {
  struct latest_recording latest;
  openreg_shared_event *shared = event->shared;
  openreg_status status = openreg_shared_event_latest(shared, &latest.recorded, &latest.remote);
  if (status != OPENREG_OK)
    return status;
  if (latest.remote.file == NULL)
    return openreg_recording_wait_on_stream(&openreg_streams[device][stream], event,
                                            latest.recorded);
  status = openreg_remote_fence_await_on_stream(&latest.remote, device, stream);
  openreg_shared_event_release_fence(shared, &latest.remote);
  return status;
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* Work that was dropped by shutting down was not done, so other processes must not see it as
 * done. */
static void set_timestamp(openreg_event *event, uint64_t recording) {
  if (!openreg_streams_are_shut_down())
    openreg_shared_event_end(event->shared, (uint32_t)recording);
}

static void close_shared(openreg_event *event) {
  openreg_shared_event_close(event->shared);
}

static const struct openreg_event_sharing sharing = {
    .record = record,
    .query = query,
    .synchronize = synchronize,
    .wait_on_stream = wait_on_stream,
    .set_timestamp = set_timestamp,
    .close = close_shared,
};

static bool is_shared(const openreg_event *event) {
  return atomic_load_explicit(&event->sharing, memory_order_acquire) != NULL;
}

/* ---- exporting and importing ----------------------------------------------------------------- */

/* Shares a recording made before the event was shared. It uses a later point of the same stream,
 * which is equivalent, because waiting for a point waits for all earlier ones. */
static openreg_status share_last_recording(openreg_event *event) {
  uint64_t recorded = openreg_event_recorded(event);
  if (openreg_recording_is_reached(event, recorded))
    return OPENREG_OK;
  return record_in_queue(event, openreg_stream_number(openreg_recording_stream(event, recorded)));
}

static openreg_status share(openreg_event *event) {
  openreg_shared_event *shared;
  openreg_status status = openreg_shared_event_create(event->device, &shared);
  if (status != OPENREG_OK)
    return status;
  event->shared = shared;
  atomic_store_explicit(&event->sharing, &sharing, memory_order_release);
  status = share_last_recording(event);
  if (status == OPENREG_OK)
    return OPENREG_OK;
  atomic_store_explicit(&event->sharing, NULL, memory_order_release);
  openreg_shared_event_close(shared);
  return status;
}

openreg_status openreg_event_export(openreg_event *event, openreg_ipc_handle *handle) {
  openreg_status status = openreg_require_event(event);
  if (status != OPENREG_OK)
    return status;
  if (event->timing)
    return openreg_fail(
        OPENREG_INVALID_ARGUMENT,
        "openreg: an event with timing cannot be exported; create it without timing");
  if (!is_shared(event))
    status = share(event);
  else if (openreg_shared_event_is_imported(event->shared))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: an imported event cannot be exported; "
                                                  "only the process that created it can export it");
  if (status == OPENREG_OK)
    openreg_shared_event_pack(event->shared, handle);
  return status;
}

openreg_status openreg_event_import(const openreg_ipc_handle *handle, openreg_event **event) {
  openreg_shared_event *shared;
  openreg_event *created = NULL;
  openreg_status status = openreg_shared_event_open(handle, &shared);
  if (status != OPENREG_OK)
    return status;
  status = openreg_event_make(openreg_shared_event_device(shared), false, &created);
  if (status != OPENREG_OK) {
    openreg_shared_event_close(shared);
    return status;
  }
  created->shared = shared;
  atomic_init(&created->sharing, &sharing);
  *event = created;
  return OPENREG_OK;
}
