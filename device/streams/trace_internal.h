/* trace_internal.h: calls to the tracer (device/trace.h), for the files of this folder. */
#ifndef OPENREG_DEVICE_STREAMS_TRACE_INTERNAL_H
#define OPENREG_DEVICE_STREAMS_TRACE_INTERNAL_H

#include "device/streams/stream.h"
#include "device/trace.h"

#pragma GCC visibility push(hidden)

extern _Atomic bool openreg_is_tracing;

/* Acquire: a thread that sees that tracing has begun also sees the installed tracer. */
static inline bool openreg_tracing(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_is_tracing, memory_order_acquire), 0);
}

/* The note of a task that is about to be submitted; NULL if tracing is off. */
void *openreg_trace_note(const struct stream *stream, const struct task *task);

/* Returns true if the task must be reported. Then fills `work`, which the caller passes to
 * openreg_trace_report when the task is done. */
bool openreg_trace_task(const struct stream *stream, const struct task *task,
                        openreg_trace_work *work);
void openreg_trace_report(openreg_trace_work *work);

/* Reports inline work that began at `begin_ns` and ends now. */
void openreg_trace_inline(const struct stream *stream, int64_t begin_ns);

#pragma GCC visibility pop
#endif
