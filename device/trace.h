/* trace.h: the second contract of the device layer: who is told of the work that streams do, with
 * the times at which it was done.
 *
 * Nobody, as a rule: then work costs a look at one flag. While somebody is, he is asked for a note
 * on the thread that gives the work to the stream, and told on the thread that does it, when it is
 * done and before others can see that it is. Work that was given to a stream before has no note.
 *
 * - A note is told of once, however long the work waits: also when nobody is told any more.
 * - Work within inline work is a part of it.
 * - Work that is dropped because streams were shut down is told of as if it had taken no time.
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
  OPENREG_TRACE_INLINE, /* a function, or whatever the thread did between begin and end */
  OPENREG_TRACE_QUEUED,
  OPENREG_TRACE_WAIT, /* of the stream, for a point of another */
} openreg_trace_kind;

typedef struct openreg_trace_work {
  openreg_trace_kind kind;
  int device, stream;
  int awaited_device, awaited_stream; /* of a wait; -1: a stream of another process */
  int64_t begin_ns, end_ns;           /* as openreg_now_ns */
  uint64_t
      ahead;  /* how much work the stream had been given and not done, at `begin_ns`: with this */
  void *note; /* NULL: the work was given to the stream before anybody was told */
} openreg_trace_work;

typedef struct openreg_tracer {
  /* Returns a note, not NULL, about work that the calling thread gives to a stream or, of inline
   * work, has done. Must not give work to streams. */
  void *(*note)(openreg_trace_kind kind, int device, int stream);
  /* Told of work, and given the note. */
  void (*tell)(const openreg_trace_work *work);
} openreg_tracer;

/* Who is told; to be called once, before openreg_trace_begin. The tracer lives as long as the
 * process. */
void openreg_trace_install(const openreg_tracer *tracer);

/* From now on, and until now. On any thread. */
void openreg_trace_begin(void);
void openreg_trace_end(void);

/* Nobody is told of the inline work that this thread does on the stream: the work is not done, and
 * will be queued. */
void openreg_trace_skip_inline(int device, int stream);

#ifdef __cplusplus
}
#endif
#endif
