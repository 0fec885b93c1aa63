/* trace.h: reports the work of streams with begin and end times. Public, in addition to device.h.
 *
 * While tracing is off, work costs one load of a flag. While it is on, the tracer is called twice
 * for each piece of work: `note` on the thread that submits the work, and `report` on the thread
 * that runs it, after it has finished and before others can see that it has. Work that was
 * submitted before tracing began has no note.
 *
 * - Each note is reported exactly once, even if the work runs after tracing has ended.
 * - Work inside inline work counts as part of it.
 * - Work that is dropped because streams were shut down is reported with a duration of zero.
 */
#ifndef OPENREG_DEVICE_TRACE_H
#define OPENREG_DEVICE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum openreg_trace_kind {
  OPENREG_TRACE_INLINE, /* a function, or everything a thread did between begin and end */
  OPENREG_TRACE_QUEUED,
  OPENREG_TRACE_WAIT, /* the stream waited for a point of another stream */
} openreg_trace_kind;

typedef struct openreg_trace_work {
  openreg_trace_kind kind;
  int device, stream;
  int awaited_device, awaited_stream; /* of a wait; -1: a stream of another process */
  int64_t begin_ns, end_ns;           /* as openreg_now_ns returns */
  uint64_t queue_depth; /* unfinished submissions of the stream at `begin_ns`, including this one */
  void *note;           /* NULL: submitted before tracing began */
} openreg_trace_work;

typedef struct openreg_tracer {
  /* Returns a note (not NULL) about work that the calling thread submits or, for inline work, has
   * finished. Must not submit work. */
  void *(*note)(openreg_trace_kind kind, int device, int stream);
  /* Reports finished work. Receives the note. */
  void (*report)(const openreg_trace_work *work);
} openreg_tracer;

/* Installs the tracer. Call it once, before openreg_trace_begin. The tracer must live as long as
 * the process. */
void openreg_trace_install(const openreg_tracer *tracer);

/* Turn tracing on and off. Any thread. */
void openreg_trace_begin(void);
void openreg_trace_end(void);

/* Discards the calling thread's current inline work on the stream: it will be queued instead, so
 * the inline part must not be reported. */
void openreg_trace_skip_inline(int device, int stream);

#ifdef __cplusplus
}
#endif
#endif
