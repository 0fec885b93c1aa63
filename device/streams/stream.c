/* stream.c: pools, the current stream, and waiting for streams. */
#include "device/streams/capture_internal.h"

struct stream openreg_streams[OPENREG_MAX_DEVICES][OPENREG_STREAMS_PER_DEVICE];

static _Atomic unsigned next_from_pool[OPENREG_MAX_DEVICES][OPENREG_STREAM_PRIORITIES];
_Thread_local int openreg_current_streams[OPENREG_MAX_DEVICES];

openreg_status openreg_require_stream(int stream) {
  if (stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: invalid stream %d: expected 0 to %d",
                        stream, OPENREG_STREAMS_PER_DEVICE - 1);
  return OPENREG_OK;
}

static openreg_status require_usable(int device, int stream) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK)
    status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  return status;
}

/* ---- pools and the current stream ------------------------------------------------------------ */

openreg_status openreg_stream_from_pool(int device, int priority, int *stream) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK)
    status = openreg_require_device(device);
  if (status != OPENREG_OK)
    return status;
  int highest = OPENREG_STREAM_PRIORITIES - 1;
  int rank = priority >= 0 ? 0 : priority < -highest ? highest : -priority;
  unsigned number =
      atomic_fetch_add_explicit(&next_from_pool[device][rank], 1, memory_order_relaxed);
  *stream = 1 + rank * OPENREG_STREAMS_PER_POOL + (int)(number % OPENREG_STREAMS_PER_POOL);
  return OPENREG_OK;
}

openreg_status openreg_stream_priority(int device, int stream, int *priority) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    *priority = -openreg_stream_rank(stream);
  return status;
}

openreg_status openreg_stream_current(int device, int *stream) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    *stream = openreg_current_streams[device];
  return status;
}

openreg_status openreg_stream_set_current(int device, int stream) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    openreg_current_streams[device] = stream;
  return status;
}

/* ---- waiting --------------------------------------------------------------------------------- */

openreg_status openreg_stream_query(int device, int stream) {
  openreg_status status = require_usable(device, stream);
  if (status == OPENREG_OK)
    status =
        openreg_stream_refuse_in_capture(&openreg_streams[device][stream], "querying the stream");
  if (status != OPENREG_OK)
    return status;
  return openreg_timeline_is_idle(&openreg_streams[device][stream].timeline) ? OPENREG_OK
                                                                             : OPENREG_NOT_READY;
}

bool openreg_stream_is_idle(int device, int stream) {
  return openreg_timeline_is_idle(&openreg_streams[device][stream].timeline);
}

static openreg_status await_point(struct stream *stream, uint64_t point, int64_t deadline_ns) {
  if (openreg_timeline_reached(&stream->timeline, point))
    return OPENREG_OK;
  if (openreg_worker_is_this_thread())
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: cannot wait for a stream from inside work that runs on a stream");
  if (openreg_stream_is_owned_by_caller(stream))
    return openreg_fail(
        OPENREG_NOT_PERMITTED,
        "openreg: cannot synchronize a stream from inside work running on that stream");
  return openreg_timeline_wait(&stream->timeline, point, deadline_ns) ? OPENREG_OK
                                                                      : OPENREG_NOT_READY;
}

/* Waits for everything submitted. If this thread owns the stream, that excludes its own work, and
 * nothing is left to wait for. Captured work is not submitted work. */
static openreg_status await_end(struct stream *stream, int64_t deadline_ns) {
  if (openreg_stream_is_owned_by_caller(stream))
    return OPENREG_OK;
  uint64_t end = openreg_stream_captures(stream) ? openreg_capture_timeline_end(stream)
                                                 : openreg_timeline_end(&stream->timeline);
  return await_point(stream, end, deadline_ns);
}

openreg_status openreg_stream_await(struct stream *stream, uint64_t point, int64_t deadline_ns) {
  openreg_status status = await_point(stream, point, deadline_ns);
  return status == OPENREG_OK ? openreg_failure_take(openreg_stream_device(stream)) : status;
}

static openreg_status drain_stream(int device, int stream, int64_t deadline_ns) {
  openreg_status status = require_usable(device, stream);
  return status == OPENREG_OK ? await_end(&openreg_streams[device][stream], deadline_ns) : status;
}

static openreg_status drain_device(int device, int64_t deadline_ns) {
  openreg_status status = require_usable(device, OPENREG_STREAM_DEFAULT);
  for (int i = 0; status == OPENREG_OK && i < OPENREG_STREAMS_PER_DEVICE; i++) {
    struct stream *stream = &openreg_streams[device][i];
    if (!openreg_timeline_is_idle(&stream->timeline))
      status = await_end(stream, deadline_ns);
  }
  return status;
}

openreg_status openreg_stream_drain(int device, int stream) {
  return drain_stream(device, stream, OPENREG_NEVER);
}

openreg_status openreg_device_drain(int device) {
  return drain_device(device, OPENREG_NEVER);
}

static openreg_status synchronize_stream(int device, int stream, int64_t deadline_ns) {
  openreg_status status = require_usable(device, stream);
  if (status == OPENREG_OK)
    status = openreg_stream_refuse_in_capture(&openreg_streams[device][stream],
                                              "waiting for the stream");
  if (status == OPENREG_OK)
    status = drain_stream(device, stream, deadline_ns);
  return status == OPENREG_OK ? openreg_failure_take(device) : status;
}

static openreg_status synchronize_device(int device, int64_t deadline_ns) {
  openreg_status status = require_usable(device, OPENREG_STREAM_DEFAULT);
  if (status == OPENREG_OK)
    status = openreg_device_refuse_in_capture(device, "waiting for the device");
  if (status == OPENREG_OK)
    status = drain_device(device, deadline_ns);
  return status == OPENREG_OK ? openreg_failure_take(device) : status;
}

openreg_status openreg_stream_synchronize(int device, int stream) {
  return synchronize_stream(device, stream, OPENREG_NEVER);
}

openreg_status openreg_stream_synchronize_for(int device, int stream, uint64_t timeout_ns) {
  return synchronize_stream(device, stream, openreg_deadline_ns(timeout_ns));
}

openreg_status openreg_device_synchronize(int device) {
  return synchronize_device(device, OPENREG_NEVER);
}

openreg_status openreg_device_synchronize_for(int device, uint64_t timeout_ns) {
  return synchronize_device(device, openreg_deadline_ns(timeout_ns));
}
