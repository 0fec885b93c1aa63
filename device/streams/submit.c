/* submit.c: submits work to a stream's worker, or runs it inline on the calling thread.
 *
 * Both ways take a sequence number. Inline work runs in sequence order, like any other work, and
 * queued work behind it waits. So inline work never runs concurrently with other work of its
 * stream.
 */
#include "device/streams/capture_internal.h"
#include "device/streams/trace_internal.h"

#include <assert.h>

static _Thread_local char thread_tag; /* its address identifies the thread */

static openreg_status find(int device, int stream, struct stream **found) {
  openreg_status status = openreg_require_context(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    *found = &openreg_streams[device][stream];
  return status;
}

/* ---- inline work ----------------------------------------------------------------------------- */

bool openreg_stream_is_owned_by_caller(const struct stream *stream) {
  return atomic_load_explicit(&stream->timeline.owner, memory_order_relaxed) == &thread_tag;
}

void openreg_stream_begin_exclusive(struct stream *stream) {
  stream->timeline.depth = 1;
  atomic_store_explicit(&stream->timeline.owner, &thread_tag, memory_order_relaxed);
}

void openreg_stream_end_exclusive(struct stream *stream, uint64_t point) {
  atomic_store_explicit(&stream->timeline.owner, NULL, memory_order_relaxed);
  openreg_timeline_finish(&stream->timeline, point);
}

static void begin_inline(struct stream *stream) {
  openreg_stream_begin_exclusive(stream);
  if (openreg_busy_is_sampled())
    stream->timeline.counts_busy = openreg_busy_begin_if_sampled(openreg_stream_device(stream));
  if (openreg_tracing())
    stream->timeline.trace_begin_ns = openreg_now_ns();
}

__attribute__((noinline)) static void stop_counting(struct stream *stream) {
  stream->timeline.counts_busy = false;
  openreg_busy_end(openreg_stream_device(stream));
}

__attribute__((noinline)) static void stop_trace(struct stream *stream) {
  int64_t began_ns = stream->timeline.trace_begin_ns;
  stream->timeline.trace_begin_ns = 0;
  openreg_trace_inline(stream, began_ns);
}

static void end_inline(struct stream *stream) {
  uint64_t point = openreg_timeline_finished(&stream->timeline) + 1;
  if (stream->timeline.trace_begin_ns != 0)
    stop_trace(stream);
  if (stream->timeline.counts_busy)
    stop_counting(stream);
  openreg_stream_end_exclusive(stream, point);
  if (atomic_load(&stream->timeline.submitted) != point)
    openreg_queue_wake(&stream->queue);
}

static openreg_status try_begin(struct stream *stream) {
  if (openreg_stream_is_owned_by_caller(stream)) {
    stream->timeline.depth++;
    return OPENREG_OK;
  }
  if (!openreg_timeline_try_take_sequence(&stream->timeline))
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
  assert(openreg_stream_is_owned_by_caller(held));
  if (--held->timeline.depth == 0)
    end_inline(held);
}

/* Running work is inline work if its sequence number was not published. A thread that frees memory
 * used by queued work has seen that work submitted, and therefore also the inline work before
 * it. */
__attribute__((noinline)) static bool runs_inline_elsewhere(const struct stream *stream,
                                                            uint64_t running) {
  return !openreg_stream_is_owned_by_caller(stream) &&
         !openreg_queue_has_task(&stream->queue, running);
}

/* Called on each free: two loads find out that nothing is queued. */
bool openreg_stream_has_pending_inline(int device, int stream) {
  const struct stream *found = &openreg_streams[device][stream];
  uint64_t running = openreg_timeline_finished(&found->timeline);
  if (openreg_timeline_end(&found->timeline) <= running + 1 ||
      openreg_queue_slots(&found->queue) == NULL)
    return false;
  return runs_inline_elsewhere(found, running);
}

static openreg_status run_blocking(struct stream *stream, const struct task *task,
                                   uint64_t *point) {
  uint64_t sequence = openreg_timeline_take_sequence(&stream->timeline);
  openreg_timeline_wait(&stream->timeline, sequence, OPENREG_NEVER);
  begin_inline(stream);
  if (task->kind != TASK_FUNCTION)
    stream->timeline.trace_begin_ns = 0;
  openreg_status status = openreg_task_execute(task);
  end_inline(stream);
  if (point != NULL)
    *point = sequence + 1;
  return status;
}

/* ---- queued work ----------------------------------------------------------------------------- */

/* Counts a task that may begin at once. It stays at the head until it has run, because nobody else
 * has its sequence number. */
static void mark_urgent(struct stream *stream, struct task *task, uint64_t sequence) {
  int rank = openreg_stream_rank(openreg_stream_number(stream));
  task->urgent = task->kind == TASK_FUNCTION && rank > 0 &&
                 openreg_timeline_finished(&stream->timeline) == sequence;
  if (task->urgent)
    openreg_priority_add(openreg_stream_device(stream), rank);
}

static openreg_status enqueue(struct stream *stream, struct task task, uint64_t *point) {
  openreg_status status = openreg_worker_start(stream);
  if (status != OPENREG_OK)
    return status;
  task.note = openreg_trace_note(stream, &task);
  uint64_t sequence = openreg_timeline_take_sequence(&stream->timeline);
  mark_urgent(stream, &task, sequence);
  openreg_queue_put(&stream->queue, &stream->timeline, sequence, &task);
  if (point != NULL)
    *point = sequence + 1;
  return OPENREG_OK;
}

openreg_status openreg_stream_submit(struct stream *stream, const struct task *task,
                                     uint64_t *point) {
  const openreg_config *config;
  if (openreg_worker_is_this_thread())
    return openreg_fail(
        OPENREG_NOT_PERMITTED,
        "openreg: cannot submit work to a stream from inside work that runs on a stream");
  if (openreg_stream_is_owned_by_caller(stream))
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: cannot submit work to stream %d of device %d from inside inline "
                        "work on that stream",
                        openreg_stream_number(stream), openreg_stream_device(stream));
  openreg_status status =
      openreg_stream_refuse_in_capture(stream, "work that cannot become a graph node");
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
      openreg_worker_is_this_thread() || openreg_stream_is_owned_by_caller(found))
    return OPENREG_OK;
  return openreg_timeline_wait(timeline, room_at, openreg_deadline_ns(timeout_ns))
             ? OPENREG_OK
             : OPENREG_NOT_READY;
}
