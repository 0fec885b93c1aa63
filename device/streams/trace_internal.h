/* tracing.h: the way to the tracer (device/trace.h), for the files that make streams work. */
#ifndef OPENREG_DEVICE_STREAMS_TRACING_H
#define OPENREG_DEVICE_STREAMS_TRACING_H

#include "device/streams/stream.h"
#include "device/trace.h"

#pragma GCC visibility push(hidden)

extern _Atomic bool openreg_is_tracing;

static inline bool openreg_tracing(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_is_tracing, memory_order_relaxed), 0);
}

/* The note of a task that is about to be given to a stream; NULL when nobody is told of it. */
void *openreg_trace_note(const struct stream *stream, const struct task *task);

/* Whether somebody is to be told of the task; if so, `work` is told of by openreg_trace_tell when
 * it is done. */
bool openreg_trace_task(const struct stream *stream, const struct task *task,
                        openreg_trace_work *work);
void openreg_trace_tell(openreg_trace_work *work);

/* Inline work that began at `begin_ns` ends. */
void openreg_trace_inline(const struct stream *stream, int64_t begin_ns);

#pragma GCC visibility pop
#endif
