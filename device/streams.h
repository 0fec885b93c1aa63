/* streams.h: streams, which are ordered queues of work, and events, which are points in that order.
 * Public; device.h includes it and has the conventions.
 */
#ifndef OPENREG_DEVICE_STREAMS_H
#define OPENREG_DEVICE_STREAMS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- streams --------------------------------------------------------------------------------- */

/* A stream runs its work in the order of submission, concurrently with other streams. Streams are
 * identified by numbers: 0 is the default stream of its device; then come 32 streams of each
 * priority: 0 (normal), -1, -2 and -3 (the highest). A stream allocates nothing until work is
 * queued on it. Then it gets a queue of 64 KiB and a worker thread on the device's cores.
 *
 * Order. Launching, try_begin_inline, recording a timing event and wait_event are submissions.
 * Submissions to one stream are ordered by the calls: those of one thread, and those of several
 * threads if one call returned before the other began. Concurrent calls are ordered arbitrarily,
 * but never interleaved.
 *
 * Memory. Work sees everything that the submitting thread wrote before. What work wrote is visible
 * to later work on the stream, to work that waits for an event after it, and to a thread that
 * observed its completion by is_idle, query, synchronize or try_begin_inline.
 *
 * Completion. Work has finished when its function has returned, not when it left the queue.
 *
 * No deadlocks. Every wait, in a queue or for space in one, is for work that was submitted earlier.
 * An event refers to a point that exists when it is recorded, and recording it again does not
 * affect earlier waits. So the oldest unfinished work never waits for other work, and streams
 * cannot wait for each other in a cycle. Only functions that wait themselves can deadlock.
 *
 * Failures. If a function fails on a worker, its device keeps the status and the message. If
 * several fail, the first failure is kept. The next synchronize of anything on that device, on any
 * thread, returns the failure and clears it. The device and its streams stay usable.
 *
 * Blocking. With OPENREG_LAUNCH_BLOCKING=1 the submitting thread runs the work itself, in stream
 * order, before the call returns. The call returns the work's failure.
 *
 * Inside work. A function that runs on a worker must not submit work or wait for streams. Such
 * calls fail with NOT_PERMITTED unless there is nothing to wait for. For inline work see
 * openreg_stream_try_begin_inline. */
enum {
  OPENREG_STREAM_DEFAULT = 0,
  OPENREG_STREAMS_PER_POOL = 32,
  OPENREG_STREAM_PRIORITIES = 4, /* 0, -1, -2 and -3, as PyTorch has them */
  OPENREG_STREAMS_PER_DEVICE = 1 + OPENREG_STREAM_PRIORITIES * OPENREG_STREAMS_PER_POOL,
  /* Unfinished submissions that a stream can hold, as in CUDA. The next submission waits until half
   * of them have finished. */
  OPENREG_STREAM_QUEUE_LENGTH = 1024,
};

/* Returns the next stream of a priority, round robin. Numbers beyond the range mean its nearest
 * priority, as in CUDA. Errors: INVALID_DEVICE. */
openreg_status openreg_stream_from_pool(int device, int priority, int *stream);

/* Returns a stream's priority. While work at the head of a stream is waiting to begin, no function
 * of the device's streams of lower priority begins, if the stream's priority is not 0. Running work
 * is not stopped. If the system permits it, workers of priorities below 0 get a larger share of
 * their cores. Errors: INVALID_DEVICE, INVALID_ARGUMENT (no such stream). */
openreg_status openreg_stream_priority(int device, int stream, int *priority);

/* The calling thread's current stream on a device, initially the default stream. Errors:
 * INVALID_DEVICE; of set also INVALID_ARGUMENT (no such stream). */
openreg_status openreg_stream_current(int device, int *stream);
openreg_status openreg_stream_set_current(int device, int stream);

/* A stream's handle: the number that CUDA mode and the CUDA runtime (cudart/) use as cudaStream_t.
 * It names the device and the stream. The default stream has one handle for all devices. */
enum {
  OPENREG_HANDLE_DEFAULT = 0,
  OPENREG_HANDLE_LEGACY = 1, /* another name of the default stream, accepted but never made */
};

/* Device and stream must exist. */
uintptr_t openreg_stream_make_handle(int device, int stream);

/* Returns device and stream of a handle; for the default stream, the thread's current device.
 * Errors: INVALID_ARGUMENT (no handle of a stream that this process sees). */
openreg_status openreg_stream_parse_handle(uintptr_t handle, int *device, int *stream);

/* A piece of work. Returns OK, or a failure that the device keeps, whose message is in
 * openreg_last_error(). Runs with signals blocked. The library holds no lock while it runs. */
typedef openreg_status (*openreg_stream_function)(void *data);

/* Submits function(data), which the stream's worker will call. The caller keeps `data` alive until
 * then. Allocates only on the first use of the stream. Waits while the queue is full, so the caller
 * must not hold a lock that queued functions need. Errors: INVALID_DEVICE, INVALID_ARGUMENT (NULL,
 * or no such stream), NOT_PERMITTED (on a worker, or inside inline work on the same stream),
 * OUT_OF_MEMORY (of the host), BAD_FORK, SYSTEM; with OPENREG_LAUNCH_BLOCKING=1 also the function's
 * failure. */
openreg_status openreg_stream_launch(int device, int stream, openreg_stream_function function,
                                     void *data);

/* Waits for at most `timeout_ns` until the stream's queue has space. Returns NOT_READY after that,
 * so that the caller can handle signals and call again. Another thread may use the space first.
 * Also returns OK where launch would fail with NOT_PERMITTED. Errors: INVALID_DEVICE,
 * INVALID_ARGUMENT, BAD_FORK, SYSTEM. */
openreg_status openreg_stream_await_room_for(int device, int stream, uint64_t timeout_ns);

/* Begins inline work on an idle stream, or returns NOT_READY if the stream is not idle. Until
 * end_inline the calling thread acts as the stream: work that others submit is queued behind.
 * Checking is_idle first would not be enough, because another thread may submit in between.
 *
 * Calls may be nested; the same thread must end as often as it began. Meanwhile the thread must not
 * submit to the stream (NOT_PERMITTED). Synchronizing the stream then waits only for work before
 * its own. Waiting for another stream is safe only if that stream does not wait for this one.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, SYSTEM. */
openreg_status openreg_stream_try_begin_inline(int device, int stream);

/* The same for the thread's current stream, which is returned in `stream` with OK and NOT_READY.
 * Combines what each launch needs in one call. Errors: INVALID_DEVICE, BAD_FORK, SYSTEM. */
openreg_status openreg_stream_try_begin_current(int device, int *stream);

/* Ends inline work begun by either function. */
void openreg_stream_end_inline(int device, int stream);

/* Whether another thread runs inline work on the stream while work is queued behind it. Memory that
 * the queued work uses, and that is freed in the meantime, must not be given to the inline work,
 * which may still allocate. An allocator calls this on each free. Device and stream must exist. */
bool openreg_stream_has_pending_inline(int device, int stream);

/* OK if all work submitted to the stream has finished, else NOT_READY. Does not return failures of
 * work. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_stream_query(int device, int stream);

/* The same, as two loads. Device and stream must exist. */
bool openreg_stream_is_idle(int device, int stream);

/* Wait until all work that was submitted before the call has finished. The variants with a timeout
 * return NOT_READY if it has not after `timeout_ns`, so that the caller can handle signals and call
 * again. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, NOT_PERMITTED (on a worker), and a
 * failure of any work of the device. */
openreg_status openreg_stream_synchronize(int device, int stream);
openreg_status openreg_stream_synchronize_for(int device, int stream, uint64_t timeout_ns);
openreg_status openreg_device_synchronize(int device);
openreg_status openreg_device_synchronize_for(int device, uint64_t timeout_ns);

/* Wait as synchronize does, but leave failures of work for the next synchronize. For callers that
 * reuse or free memory. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, NOT_PERMITTED (on a
 * worker). */
openreg_status openreg_stream_drain(int device, int stream);
openreg_status openreg_device_drain(int device);

/* Keeps this thread's last failure for the device, as if work on it had failed. The device must
 * exist. */
void openreg_device_keep_failure(int device, openreg_status status);

/* To be called at process exit. Drops all queued work, as CUDA does, and waits for functions that
 * are running. Afterwards no worker calls a function; dropped work counts as finished; launches run
 * on the submitting thread. The caller must not hold a lock that a running function may need. On a
 * worker it does not wait; in a forked child it does nothing. */
void openreg_streams_shut_down(void);

/* ---- events ---------------------------------------------------------------------------------- */

/* A point in a stream's work, and the time at which the stream reached it. Owned by the caller. */
typedef struct openreg_event openreg_event;

/* Creates an event. Elapsed time needs `enable_timing`; recording such an event on a busy stream is
 * a submission. Errors: INVALID_DEVICE, OUT_OF_MEMORY (of the host). */
openreg_status openreg_event_create(int device, bool enable_timing, openreg_event **event);

/* The device that the event was created for. */
int openreg_event_device(const openreg_event *event);

/* Destroys an event; NULL is allowed. The event need not have been reached, and streams may still
 * wait for it: waits refer to points of the stream, not to the event. */
void openreg_event_destroy(openreg_event *event);

/* Records the event after all work submitted to the stream so far. Recording again does not change
 * existing waits. Inside the stream's own work (inline or on its worker) the event follows directly
 * after that work, with the time of the call. Errors: INVALID_ARGUMENT (NULL, or no such stream),
 * BAD_FORK; for timing events also those of openreg_stream_launch. */
openreg_status openreg_event_record(openreg_event *event, int stream);

/* Query returns OK if the event was reached or was never recorded, else NOT_READY. Synchronize
 * waits on the host, as openreg_stream_synchronize does. Errors: INVALID_ARGUMENT (NULL), BAD_FORK;
 * of synchronize also NOT_PERMITTED and a failure of any work of the device. */
openreg_status openreg_event_query(const openreg_event *event);
openreg_status openreg_event_synchronize(const openreg_event *event);
openreg_status openreg_event_synchronize_for(const openreg_event *event, uint64_t timeout_ns);

/* Makes later work of the stream (of any device) wait for the event as it is recorded now. Free if
 * the event was reached or belongs to the same stream. Errors: as openreg_stream_launch;
 * INVALID_ARGUMENT also for NULL. */
openreg_status openreg_stream_wait_event(int device, int stream, const openreg_event *event);

/* Milliseconds from `start` to `end`. Errors: INVALID_ARGUMENT (NULL, created without timing, never
 * recorded, or different devices), NOT_READY (not reached yet), BAD_FORK. */
openreg_status openreg_event_elapsed_ms(const openreg_event *start, const openreg_event *end,
                                        double *milliseconds);

/* Share an event between processes. Export makes a handle for an event without timing; any number
 * of processes may import it. May be repeated. Every process that has the event may record, query
 * and wait for it, each on its own streams. The event stands for the latest recording by any
 * process. If several processes record at the same time, all of them agree on which recording is
 * last. A recording of another process counts as reached when all earlier recordings of that
 * process are reached too.
 *
 * Destroying the event makes its handles stale. Importers keep the event, also after its creator
 * has ended. The event must not be exported while another thread records or exports it.
 *
 * Errors of export: INVALID_ARGUMENT (NULL, with timing, or imported), OUT_OF_MEMORY as
 * openreg_ipc_export, BAD_FORK, SYSTEM; if its work has not finished also those of
 * openreg_stream_launch. Errors of import: as openreg_ipc_open.
 *
 * Recording a shared event on a busy stream is a submission, with its errors, also inside the
 * stream's own work; it may fail with OUT_OF_MEMORY (of the host). A process's first recording of
 * an imported event uses one of its own device's 32767 exports until it destroys the event, with
 * the errors of export.
 *
 * Query and wait fail with LAUNCH_FAILURE if the process that recorded last died before its work
 * finished, until the event is recorded again. They fail with OUT_OF_MEMORY or SYSTEM if that
 * process's memory file cannot be opened; this happens once per process. */
openreg_status openreg_event_export(openreg_event *event, openreg_ipc_handle *handle);
openreg_status openreg_event_import(const openreg_ipc_handle *handle, openreg_event **event);

#ifdef __cplusplus
}
#endif
#endif
