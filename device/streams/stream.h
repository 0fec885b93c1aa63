/* stream.h: what a stream is made of, for the files that make streams work.
 *
 *     timeline.h   how far it has come          queue.h      what waits for its worker
 *     worker.c     the thread that does it      submit.c     giving work, to it or inline
 *     priority.c   who may begin first          failure.c    errors of work that nobody waited for
 *     event.c      points on timelines          stream.c     pools, the current stream, waiting
 *     capture.c    recording it for graphs      graph.c      what was recorded
 *     busy.h       how long work ran, for who looks at the device from outside
 *     trace.h      what ran when, for who looks from inside
 *
 * All streams of all devices are one table of zeros, of which the system commits a page when a
 * stream in it is first used; the queue and the worker come with a stream's first queued work.
 * Nothing of a stream is ever freed, so that an event may outlive everybody's interest in it.
 */
#ifndef OPENREG_DEVICE_STREAMS_STREAM_H
#define OPENREG_DEVICE_STREAMS_STREAM_H

#include "device/process/state.h"
#include "device/streams/busy_time.h"
#include "device/streams/queue.h"

#pragma GCC visibility push(hidden)

struct stream {
  struct timeline timeline;
  struct queue queue;
  _Atomic bool started;              /* the queue is open and the worker runs */
  _Atomic(struct capture *) capture; /* that the stream takes part in (capture.c); NULL: none */
};

/* ---- stream.c -------------------------------------------------------------------------------- */

extern struct stream openreg_streams[OPENREG_MAX_DEVICES][OPENREG_STREAMS_PER_DEVICE];

/* Of each device, for this thread. */
extern _Thread_local int openreg_current_streams[OPENREG_MAX_DEVICES];

static inline int openreg_stream_device(const struct stream *stream) {
  return (int)((stream - &openreg_streams[0][0]) / OPENREG_STREAMS_PER_DEVICE);
}

static inline int openreg_stream_number(const struct stream *stream) {
  return (int)((stream - &openreg_streams[0][0]) % OPENREG_STREAMS_PER_DEVICE);
}

static inline bool openreg_stream_is_high(int stream) {
  return stream > OPENREG_STREAMS_PER_POOL;
}

/* Errors: INVALID_ARGUMENT. */
openreg_status openreg_require_stream(int stream);

/* Waits on the host for a point, and then gives back the device's failure, if it has one.
 * Errors: NOT_READY when the deadline passed, NOT_PERMITTED on a worker and for a point behind the
 * work that this thread does, and any that work failed with. */
openreg_status openreg_stream_await(struct stream *stream, uint64_t point, int64_t deadline_ns);

/* ---- submit.c -------------------------------------------------------------------------------- */

/* Gives a task to the stream, whose point behind it is returned in `point` (NULL: not wanted). In
 * blocking mode and after streams were shut down the task is done on return, and a failure of it is
 * returned. Other errors: NOT_PERMITTED, OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_stream_submit(struct stream *stream, const struct task *task,
                                     uint64_t *point);

/* Between these the calling thread, whose ticket's turn it is, is the stream; letting go finishes
 * the work before `point`. */
void openreg_stream_hold(struct stream *stream);
void openreg_stream_let_go(struct stream *stream, uint64_t point);

/* Whether this thread does the stream's work now, inline or as its worker. */
bool openreg_stream_is_held(const struct stream *stream);

/* ---- worker.c -------------------------------------------------------------------------------- */

/* Opens the stream's queue and starts its worker, once. Errors: OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_worker_start(struct stream *stream);

/* Does the task on this thread. Errors: what its function returns. */
openreg_status openreg_task_execute(const struct task *task);

/* Whether this thread is the worker of any stream. */
bool openreg_worker_is_this_thread(void);

bool openreg_streams_are_shut_down(void);

/* ---- priority.c ------------------------------------------------------------------------------ */

/* Counts work at the head of a high-priority stream of the device; before it is published. */
void openreg_priority_add(int device);

/* Such work begins. */
void openreg_priority_remove(int device);

/* Waits until no work of the device is counted, if it must. */
bool openreg_priority_must_yield(int device);
void openreg_priority_yield(int device);

/* How many threads are in openreg_priority_yield, for tests. */
int openreg_priority_yielding(int device);

/* ---- failure.c ------------------------------------------------------------------------------- */

/* Keeps what work on the device failed with, and this thread's last sentence, until it is taken.
 * The first failure is kept; those after it are its consequences, as a rule. */
void openreg_failure_keep(int device, openreg_status status);

/* Takes the kept failure away and returns it, as this thread's last; OK when there is none. */
openreg_status openreg_failure_take(int device);

/* ---- event.c --------------------------------------------------------------------------------- */

/* Stamps a recording of a timing event with the time, and lets go of the event. */
void openreg_event_stamp(openreg_event *event, uint64_t recording);

#pragma GCC visibility pop
#endif
