/* stream.h: the structure of streams.
 *
 *     timeline.h    progress of the stream            queue.h      tasks that wait for the worker
 *     worker.c      the thread that runs tasks        submit.c     queued and inline submission
 *     priority.c    which stream may begin first      failure.c    failures of queued work
 *     event.c       points on timelines               stream.c     pools, current stream, waiting
 *     capture.c     recording work into graphs        graph.c      the recorded graphs
 *     busy_time.h   busy counters, for utilization    trace.c      reports to the profiler
 *     handle.c      handles, as CUDA programs have them
 *
 * All streams of all devices form one zero-initialized table. The system commits a page when a
 * stream in it is first used. The first queued work creates a stream's queue and worker. Nothing of
 * a stream is ever freed, so an event may outlive its users' interest in it.
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
  _Atomic(struct capture *) capture; /* the stream's capture (capture.c); NULL: none */
};

/* ---- stream.c -------------------------------------------------------------------------------- */

extern struct stream openreg_streams[OPENREG_MAX_DEVICES][OPENREG_STREAMS_PER_DEVICE];

/* The calling thread's current stream on each device. */
extern _Thread_local int openreg_current_streams[OPENREG_MAX_DEVICES];

static inline int openreg_stream_device(const struct stream *stream) {
  return (int)((stream - &openreg_streams[0][0]) / OPENREG_STREAMS_PER_DEVICE);
}

static inline int openreg_stream_number(const struct stream *stream) {
  return (int)((stream - &openreg_streams[0][0]) % OPENREG_STREAMS_PER_DEVICE);
}

/* The absolute value of its priority: 0 for normal streams, then the higher the more urgent. */
static inline int openreg_stream_rank(int stream) {
  return stream == OPENREG_STREAM_DEFAULT ? 0 : (stream - 1) / OPENREG_STREAMS_PER_POOL;
}

/* Errors: INVALID_ARGUMENT. */
openreg_status openreg_require_stream(int stream);

/* Waits on the host for a point, then returns and clears the device's failure, if any. Errors:
 * NOT_READY (deadline passed), NOT_PERMITTED (on a worker, or a point behind work that this thread
 * is doing), and any failure of work. */
openreg_status openreg_stream_await(struct stream *stream, uint64_t point, int64_t deadline_ns);

/* ---- submit.c -------------------------------------------------------------------------------- */

/* Submits a task. Returns the point behind it in `point` (NULL: not needed). In blocking mode, and
 * after streams were shut down, the task is done on return and its failure is returned. Other
 * errors: NOT_PERMITTED, OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_stream_submit(struct stream *stream, const struct task *task,
                                     uint64_t *point);

/* Between these calls the calling thread owns the stream: it runs the work of sequence number
 * `finished`. end_exclusive finishes all work before `point`. */
void openreg_stream_begin_exclusive(struct stream *stream);
void openreg_stream_end_exclusive(struct stream *stream, uint64_t point);

/* Whether the calling thread owns the stream, inline or as its worker. */
bool openreg_stream_is_owned_by_caller(const struct stream *stream);

/* ---- worker.c -------------------------------------------------------------------------------- */

/* Opens the stream's queue and starts its worker, once. Errors: OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_worker_start(struct stream *stream);

/* Runs the task on this thread. Errors: those of its function. */
openreg_status openreg_task_execute(const struct task *task);

/* Whether this thread is the worker of any stream. */
bool openreg_worker_is_this_thread(void);

bool openreg_streams_are_shut_down(void);

/* ---- priority.c ------------------------------------------------------------------------------ */

/* Counts work at the head of a stream of this rank, which is not 0. Call it before publishing the
 * work. */
void openreg_priority_add(int device, int rank);

/* Call it when such work begins. */
void openreg_priority_remove(int device, int rank);

/* Waits until no work of the device of a higher rank is counted; must_yield tells whether there is
 * any. */
bool openreg_priority_must_yield(int device, int rank);
void openreg_priority_yield(int device, int rank);

/* Number of threads in openreg_priority_yield; for tests. */
int openreg_priority_yielding(int device);

/* ---- failure.c ------------------------------------------------------------------------------- */

/* Keeps a failure of the device's work, with this thread's last message, until it is taken. Only
 * the first failure is kept; later ones are usually its consequences. */
void openreg_failure_keep(int device, openreg_status status);

/* Returns the kept failure as this thread's last failure and clears it. OK if there is none. */
openreg_status openreg_failure_take(int device);

/* ---- event.c --------------------------------------------------------------------------------- */

/* Sets the timestamp of a recording of a timing event, and releases the task's reference to the
 * event. */
void openreg_event_set_timestamp(openreg_event *event, uint64_t recording);

#pragma GCC visibility pop
#endif
