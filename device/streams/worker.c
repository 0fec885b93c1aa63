/* worker.c: the thread that runs a stream's queued work, and the shutdown of all workers.
 *
 * A stream's first queued work starts its worker. The worker is detached and stays until the
 * process ends; it sleeps while there is nothing to do. Shutting down does not end workers but
 * makes them drop the tasks they find. So a thread that submits at the same moment needs no lock,
 * and no thread waits for a sequence number that nobody finishes.
 */
#define _GNU_SOURCE /* gettid */
#include "device/streams/capture_internal.h"
#include "device/streams/trace_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/status.h"
#include "base/threads.h"

/* Nice value of high-priority workers, where permitted: three times the weight of a thread at nice
 * 0 (the kernel's sched_prio_to_weight). */
enum { HIGH_PRIORITY_NICE = -5 };

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool shut_down;
static _Thread_local bool is_worker;
static _Thread_local bool is_busy; /* counted as busy */

bool openreg_worker_is_this_thread(void) {
  return is_worker;
}

bool openreg_streams_are_shut_down(void) {
  return atomic_load(&shut_down);
}

/* ---- running tasks --------------------------------------------------------------------------- */

openreg_status openreg_task_execute(const struct task *task) {
  switch (task->kind) {
  case TASK_FUNCTION:
    return task->function(task->data);
  case TASK_WAIT:
    openreg_timeline_wait(task->wait.timeline, task->wait.point, OPENREG_NEVER);
    break;
  case TASK_TIMESTAMP:
    openreg_event_set_timestamp(task->timestamp.event, task->timestamp.recording);
    break;
  }
  return OPENREG_OK;
}

/* Reads the clock only on changes, not between consecutive functions. */
static void set_busy(int device, bool working) {
  if (is_busy == working)
    return;
  is_busy = working;
  if (working)
    openreg_busy_begin(device);
  else
    openreg_busy_end(device);
}

/* Waiting does not count as busy. */
static void yield_to_higher(int device, int rank) {
  if (openreg_priority_must_yield(device, rank)) {
    set_busy(device, false);
    openreg_priority_yield(device, rank);
  }
}

static void update_busy_state(int device, const struct task *task) {
  if (task->kind == TASK_FUNCTION)
    set_busy(device, true);
  else if (task->kind == TASK_WAIT &&
           !openreg_timeline_reached(task->wait.timeline, task->wait.point))
    set_busy(device, false);
}

static void run_untraced(struct stream *stream, const struct task *task) {
  int device = openreg_stream_device(stream);
  int rank = openreg_stream_rank(openreg_stream_number(stream));
  if (task->kind == TASK_FUNCTION)
    yield_to_higher(device, rank);
  if (task->urgent)
    openreg_priority_remove(device, rank);
  /* Checked after the waits above: if streams were shut down meanwhile, the function must not
   * begin. */
  if (openreg_streams_are_shut_down() && task->kind != TASK_TIMESTAMP)
    return;
  update_busy_state(device, task);
  openreg_error_clear();
  openreg_status status = openreg_task_execute(task);
  if (status != OPENREG_OK)
    openreg_failure_keep(device, status);
}

static void run_task(struct stream *stream, const struct task *task) {
  openreg_trace_work work;
  bool is_traced = openreg_trace_task(stream, task, &work);
  run_untraced(stream, task);
  if (is_traced)
    openreg_trace_report(&work);
}

static void set_up_thread(const struct stream *stream) {
  int device = openreg_stream_device(stream), number = openreg_stream_number(stream);
  char name[16]; /* the kernel's limit */
  snprintf(name, sizeof name, "openreg %d.%d", device, number);
  openreg_thread_name(name);
  openreg_device_bind_thread(device);
  if (openreg_stream_rank(number) > 0)
    setpriority(PRIO_PROCESS, (id_t)gettid(),
                HIGH_PRIORITY_NICE); /* usually refused, which does not matter */
}

static uint64_t await_task(struct stream *stream) {
  uint64_t sequence = openreg_timeline_finished(&stream->timeline);
  if (openreg_queue_has_task(&stream->queue, sequence))
    return sequence;
  set_busy(openreg_stream_device(stream), false);
  return openreg_queue_await(&stream->queue, &stream->timeline);
}

static void *worker_main(void *argument) {
  struct stream *stream = argument;
  is_worker = true;
  set_up_thread(stream);
  for (;;) {
    uint64_t sequence = await_task(stream);
    openreg_stream_begin_exclusive(stream);
    run_task(stream, &openreg_queue_slot(&stream->queue, sequence)->task);
    openreg_stream_end_exclusive(stream, sequence + 1);
  }
  return NULL;
}

/* ---- starting -------------------------------------------------------------------------------- */

static openreg_status start_locked(struct stream *stream) {
  openreg_status status =
      openreg_queue_slots(&stream->queue) == NULL ? openreg_queue_open(&stream->queue) : OPENREG_OK;
  if (status != OPENREG_OK)
    return status;
  int error = openreg_thread_start(worker_main, stream);
  if (error != 0)
    return openreg_fail(
        OPENREG_SYSTEM, "openreg: cannot start a worker thread for stream %d of device %d: %s",
        openreg_stream_number(stream), openreg_stream_device(stream), strerror(error));
  atomic_store_explicit(&stream->started, true, memory_order_release);
  return OPENREG_OK;
}

openreg_status openreg_worker_start(struct stream *stream) {
  if (atomic_load_explicit(&stream->started, memory_order_acquire))
    return OPENREG_OK;
  pthread_mutex_lock(&starting);
  openreg_status status = stream->started ? OPENREG_OK : start_locked(stream);
  pthread_mutex_unlock(&starting);
  return status;
}

/* ---- shutting down --------------------------------------------------------------------------- */

/* Work whose sequence number is taken after `shut_down` was set is dropped. Work with an earlier
 * number may be running; this waits for it. */
void openreg_streams_shut_down(void) {
  if (openreg_in_bad_fork())
    return;
  atomic_store(&shut_down, true);
  if (is_worker)
    return;
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++)
    for (int number = 0; number < OPENREG_STREAMS_PER_DEVICE; number++) {
      struct stream *stream = &openreg_streams[device][number];
      if (stream->started && !openreg_stream_is_owned_by_caller(stream))
        openreg_timeline_wait(&stream->timeline, openreg_capture_timeline_end(stream),
                              OPENREG_NEVER);
    }
}
