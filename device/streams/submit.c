/* submit.c: giving work to a stream: to its worker, or to do it on the calling thread.
 *
 * Both take a ticket. Work of the calling thread is done in the ticket's turn like any other: what
 * is queued behind it waits for it, so inline work never runs beside other work of its stream.
 */
#include "device/streams/capture_internal.h"
#include "device/streams/trace_internal.h"

#include <assert.h>

static _Thread_local char me; /* its address names this thread */

static openreg_status find(int device, int stream, struct stream **found) {
  openreg_status status = openreg_require_context(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    *found = &openreg_streams[device][stream];
  return status;
}

/* ---- on the calling thread ------------------------------------------------------------------- */

bool openreg_stream_is_held(const struct stream *stream) {
  return atomic_load_explicit(&stream->timeline.holder, memory_order_relaxed) == &me;
}

void openreg_stream_hold(struct stream *stream) {
  stream->timeline.depth = 1;
  atomic_store_explicit(&stream->timeline.holder, &me, memory_order_relaxed);
}

void openreg_stream_let_go(struct stream *stream, uint64_t point) {
  atomic_store_explicit(&stream->timeline.holder, NULL, memory_order_relaxed);
  openreg_timeline_finish(&stream->timeline, point);
}

static void begin_inline(struct stream *stream) {
  openreg_stream_hold(stream);
  if (openreg_busy_may_be_watched())
    stream->timeline.metered = openreg_busy_begin_if_watched(openreg_stream_device(stream));
  if (openreg_tracing())
    stream->timeline.traced_ns = openreg_now_ns();
}

__attribute__((noinline)) static void stop_meter(struct stream *stream) {
  stream->timeline.metered = false;
  openreg_busy_end(openreg_stream_device(stream));
}

__attribute__((noinline)) static void stop_trace(struct stream *stream) {
  int64_t began_ns = stream->timeline.traced_ns;
  stream->timeline.traced_ns = 0;
  openreg_trace_inline(stream, began_ns);
}

static void end_inline(struct stream *stream) {
  uint64_t point = openreg_timeline_finished(&stream->timeline) + 1;
  if (stream->timeline.traced_ns != 0)
    stop_trace(stream);
  if (stream->timeline.metered)
    stop_meter(stream);
  openreg_stream_let_go(stream, point);
  if (atomic_load(&stream->timeline.submitted) != point)
    openreg_queue_wake(&stream->queue);
}

static openreg_status try_begin(struct stream *stream) {
  if (openreg_stream_is_held(stream)) {
    stream->timeline.depth++;
    return OPENREG_OK;
  }
  if (!openreg_timeline_try_take(&stream->timeline))
    return OPENREG_NOT_READY;
  begin_inline(stream);
  return OPENREG_OK;
}

openreg_status openreg_stream_try_begin_inline(int device, int stream) {
  struct stream *found;
  openreg_status status = find(device, stream, &found);
  return status == OPENREG_OK ? try_begin(found) : status;
}

openreg_status openreg_stream_try_begin_current(int device, int *stream) {
  openreg_status status = openreg_require_context(device);
  if (status != OPENREG_OK)
    return status;
  *stream = openreg_current_streams[device];
  return try_begin(&openreg_streams[device][*stream]);
}

void openreg_stream_end_inline(int device, int stream) {
  struct stream *held = &openreg_streams[device][stream];
  assert(openreg_stream_is_held(held));
  if (--held->timeline.depth == 0)
    end_inline(held);
}

/* Inline work is what runs for a ticket that was not published. Whoever freed memory that queued
 * work uses has seen that work submitted, and so the inline work before it. */
__attribute__((noinline)) static bool runs_inline_elsewhere(const struct stream *stream,
                                                            uint64_t running) {
  return !openreg_stream_is_held(stream) && !openreg_queue_has_task(&stream->queue, running);
}

/* Each free asks: that nothing is queued is found out with two loads and no more. */
bool openreg_stream_has_inline_ahead(int device, int stream) {
  const struct stream *found = &openreg_streams[device][stream];
  uint64_t running = openreg_timeline_finished(&found->timeline);
  if (openreg_timeline_end(&found->timeline) <= running + 1 || found->queue.slots == NULL)
    return false;
  return runs_inline_elsewhere(found, running);
}

static openreg_status run_blocking(struct stream *stream, const struct task *task,
                                   uint64_t *point) {
  uint64_t ticket = openreg_timeline_take(&stream->timeline);
  openreg_timeline_wait(&stream->timeline, ticket, OPENREG_NEVER);
  begin_inline(stream);
  if (task->kind != TASK_FUNCTION)
    stream->timeline.traced_ns = 0;
  openreg_status status = openreg_task_execute(task);
  end_inline(stream);
  if (point != NULL)
    *point = ticket + 1;
  return status;
}

/* ---- on the worker --------------------------------------------------------------------------- */

/* Counts work whose turn it is. It stays so until it has run, for nobody else has its ticket. */
static void announce(struct stream *stream, struct task *task, uint64_t ticket) {
  task->urgent = task->kind == TASK_FUNCTION &&
                 openreg_stream_is_high(openreg_stream_number(stream)) &&
                 openreg_timeline_finished(&stream->timeline) == ticket;
  if (task->urgent)
    openreg_priority_add(openreg_stream_device(stream));
}

static openreg_status enqueue(struct stream *stream, struct task task, uint64_t *point) {
  openreg_status status = openreg_worker_start(stream);
  if (status != OPENREG_OK)
    return status;
  task.note = openreg_trace_note(stream, &task);
  uint64_t ticket = openreg_timeline_take(&stream->timeline);
  announce(stream, &task, ticket);
  openreg_queue_put(&stream->queue, &stream->timeline, ticket, &task);
  if (point != NULL)
    *point = ticket + 1;
  return OPENREG_OK;
}

openreg_status openreg_stream_submit(struct stream *stream, const struct task *task,
                                     uint64_t *point) {
  const openreg_config *config;
  if (openreg_worker_is_this_thread())
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: a function that runs on a stream must not give work to streams");
  if (openreg_stream_is_held(stream))
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: a thread must not give work to stream %d of device %d while it "
                        "does inline work on it",
                        openreg_stream_number(stream), openreg_stream_device(stream));
  openreg_status status = openreg_stream_refuse_in_capture(stream, "work that can be done once");
  if (status == OPENREG_OK)
    status = openreg_config_get(&config);
  if (status != OPENREG_OK)
    return status;
  if (config->launch_blocking || openreg_streams_are_shut_down())
    return run_blocking(stream, task, point);
  return enqueue(stream, *task, point);
}

openreg_status openreg_stream_launch(int device, int stream, openreg_stream_function function,
                                     void *data) {
  struct stream *found;
  openreg_status status = find(device, stream, &found);
  if (status != OPENREG_OK)
    return status;
  if (function == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the function to launch is NULL");
  struct task task = {.kind = TASK_FUNCTION, .function = function, .data = data};
  return openreg_stream_submit(found, &task, NULL);
}

openreg_status openreg_stream_await_room_for(int device, int stream, uint64_t timeout_ns) {
  struct stream *found;
  openreg_status status = find(device, stream, &found);
  if (status != OPENREG_OK)
    return status;
  struct timeline *timeline = &found->timeline;
  uint64_t room_at;
  if (openreg_stream_captures(found))
    return OPENREG_OK;
  if (!openreg_queue_is_full(timeline, openreg_timeline_end(timeline), &room_at) ||
      openreg_worker_is_this_thread() || openreg_stream_is_held(found))
    return OPENREG_OK;
  return openreg_timeline_wait(timeline, room_at, openreg_deadline_ns(timeout_ns))
             ? OPENREG_OK
             : OPENREG_NOT_READY;
}
