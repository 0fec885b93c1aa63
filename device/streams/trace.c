/* trace.c: calls the tracer. See device/trace.h. */
#include "device/streams/trace_internal.h"

#include <assert.h>

_Atomic bool openreg_is_tracing;

static _Atomic(const openreg_tracer *) installed;

void openreg_trace_install(const openreg_tracer *tracer) {
  atomic_store(&installed, tracer);
}

void openreg_trace_begin(void) {
  atomic_store(&openreg_is_tracing, true);
}

void openreg_trace_end(void) {
  atomic_store(&openreg_is_tracing, false);
}

void openreg_trace_skip_inline(int device, int stream) {
  assert(openreg_stream_is_owned_by_caller(&openreg_streams[device][stream]));
  openreg_streams[device][stream].timeline.trace_begin_ns = 0;
}

static const openreg_tracer *tracer(void) {
  return atomic_load_explicit(&installed, memory_order_acquire);
}

static uint64_t queue_depth_of(const struct stream *stream) {
  return openreg_timeline_end(&stream->timeline) - openreg_timeline_finished(&stream->timeline);
}

void *openreg_trace_note(const struct stream *stream, const struct task *task) {
  if (!openreg_tracing() || task->kind == TASK_TIMESTAMP)
    return NULL;
  openreg_trace_kind kind = task->kind == TASK_WAIT ? OPENREG_TRACE_WAIT : OPENREG_TRACE_QUEUED;
  return tracer()->note(kind, openreg_stream_device(stream), openreg_stream_number(stream));
}

static void set_awaited(openreg_trace_work *work, const struct timeline *awaited) {
  const char *first = (const char *)&openreg_streams[0][0];
  const char *at = (const char *)awaited;
  if (at < first || at >= first + sizeof openreg_streams)
    return;
  const struct stream *stream =
      (const struct stream *)(const void *)at; /* timeline is the first member */
  work->awaited_device = openreg_stream_device(stream);
  work->awaited_stream = openreg_stream_number(stream);
}

_Static_assert(offsetof(struct stream, timeline) == 0, "a stream is found by its timeline");

bool openreg_trace_task(const struct stream *stream, const struct task *task,
                        openreg_trace_work *work) {
  if (task->note == NULL && (!openreg_tracing() || task->kind == TASK_TIMESTAMP))
    return false;
  *work = (openreg_trace_work){
      .kind = task->kind == TASK_WAIT ? OPENREG_TRACE_WAIT : OPENREG_TRACE_QUEUED,
      .device = openreg_stream_device(stream),
      .stream = openreg_stream_number(stream),
      .awaited_device = -1,
      .awaited_stream = -1,
      .queue_depth = queue_depth_of(stream),
      .note = task->note,
  };
  if (task->kind == TASK_WAIT)
    set_awaited(work, task->wait.timeline);
  work->begin_ns = openreg_now_ns();
  return true;
}

void openreg_trace_report(openreg_trace_work *work) {
  work->end_ns = openreg_now_ns();
  tracer()->report(work);
}

void openreg_trace_inline(const struct stream *stream, int64_t begin_ns) {
  int device = openreg_stream_device(stream), number = openreg_stream_number(stream);
  openreg_trace_work work = {
      .kind = OPENREG_TRACE_INLINE,
      .device = device,
      .stream = number,
      .awaited_device = -1,
      .awaited_stream = -1,
      .begin_ns = begin_ns,
      .end_ns = openreg_now_ns(),
      .queue_depth = queue_depth_of(stream),
      .note = tracer()->note(OPENREG_TRACE_INLINE, device, number),
  };
  tracer()->report(&work);
}
