/* streams.c: streams, and the submission of work to them.
 *
 * A cudaStream_t is the handle that openreg_stream_make_handle makes; it is not a pointer to
 * anything. cudaStreamCreate gives out the streams of openreg's pools: 32 of each priority for
 * each device, which PyTorch uses too. It prefers streams that this library has not
 * given out. With more streams than that, two handles are the same stream: their work is ordered
 * although it need not be. So a destroyed handle is not recognized as such.
 */
#include "cudart/internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How many handles of a stream this library has given out. */
static unsigned users[OPENREG_MAX_DEVICES][OPENREG_STREAMS_PER_DEVICE];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* cudaStreamPerThread of each device; NULL before the thread's first use. */
static _Thread_local int *per_thread;
static pthread_key_t at_thread_end;

/* ---- creation -------------------------------------------------------------------------------- */

static openreg_status create(int device, int priority, bool is_blocking, int *number) {
  openreg_status status = OPENREG_OK;
  pthread_mutex_lock(&lock);
  int best = -1;
  for (int i = 0; status == OPENREG_OK && i < OPENREG_STREAMS_PER_POOL; i++) {
    int next;
    status = openreg_stream_from_pool(device, priority, &next);
    if (status == OPENREG_OK && (best < 0 || users[device][next] < users[device][best]))
      best = next;
    if (best >= 0 && users[device][best] == 0)
      break;
  }
  if (status == OPENREG_OK) {
    users[device][best]++;
    if (is_blocking)
      cudart_set_blocking((struct cudart_stream){device, best}, true);
    *number = best;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static void destroy(struct cudart_stream stream) {
  pthread_mutex_lock(&lock);
  unsigned *count = &users[stream.device][stream.number];
  if (*count > 0 && --*count == 0)
    cudart_set_blocking(stream, false);
  pthread_mutex_unlock(&lock);
}

/* ---- the stream of a thread ------------------------------------------------------------------ */

static void destroy_per_thread(void *numbers) {
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++)
    if (((int *)numbers)[i] != 0)
      destroy((struct cudart_stream){i, ((int *)numbers)[i]});
  free(numbers);
}

static void prepare(void) {
  (void)pthread_key_create(&at_thread_end, destroy_per_thread);
}

static openreg_status find_per_thread(int device, int *number) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prepare);
  if (per_thread == NULL) {
    per_thread = calloc(OPENREG_MAX_DEVICES, sizeof *per_thread);
    if (per_thread == NULL)
      return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a stream");
    pthread_setspecific(at_thread_end, per_thread);
  }
  openreg_status status = OPENREG_OK;
  if (per_thread[device] == 0)
    status = create(device, 0, true, &per_thread[device]);
  *number = per_thread[device];
  return status;
}

/* ---- handles --------------------------------------------------------------------------------- */

cudaError_t cudart_find_stream(cudaStream_t handle, struct cudart_stream *stream) {
  openreg_status status = cudart_enter(&stream->device);
  if (status != OPENREG_OK)
    return cudart_return(status);
  if (handle == cudaStreamPerThread)
    return cudart_return(find_per_thread(stream->device, &stream->number));
  status = openreg_stream_parse_handle((uintptr_t)handle, &stream->device, &stream->number);
  if (status == OPENREG_OK)
    status = cudart_use_device(stream->device);
  if (status == OPENREG_OK)
    status = openreg_device_create_context(stream->device);
  return cudart_return_as(status, OPENREG_INVALID_ARGUMENT, cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority) {
  if (pStream == NULL)
    return cudart_fail_null(__func__, "pStream");
  if ((flags & ~(unsigned)cudaStreamNonBlocking) != 0)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaStreamCreate: invalid flags 0x%x: expected 0 or 1", flags);
  int device, number;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK)
    status = create(device, priority, flags == cudaStreamDefault, &number);
  if (status == OPENREG_OK)
    *pStream = (cudaStream_t)openreg_stream_make_handle(device, number);
  return cudart_return(status);
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream) {
  return cudaStreamCreateWithPriority(pStream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags) {
  return cudaStreamCreateWithPriority(pStream, flags, 0);
}

/* Work that was submitted still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  struct cudart_stream found;
  if (stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return cudart_fail(cudaErrorInvalidResourceHandle,
                       "cudaStreamDestroy: a default stream cannot be destroyed");
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error == cudaSuccess)
    destroy(found);
  return error;
}

/* ---- queries --------------------------------------------------------------------------------- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess && leastPriority != NULL)
    *leastPriority = 0;
  if (error == cudaSuccess && greatestPriority != NULL)
    *greatestPriority = 1 - OPENREG_STREAM_PRIORITIES;
  return error;
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority) {
  struct cudart_stream stream;
  if (priority == NULL)
    return cudart_fail_null(__func__, "priority");
  cudaError_t error = cudart_find_stream(hStream, &stream);
  return error == cudaSuccess
             ? cudart_return(openreg_stream_priority(stream.device, stream.number, priority))
             : error;
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int *flags) {
  struct cudart_stream stream;
  if (flags == NULL)
    return cudart_fail_null(__func__, "flags");
  cudaError_t error = cudart_find_stream(hStream, &stream);
  if (error == cudaSuccess)
    *flags = stream.number == OPENREG_STREAM_DEFAULT || cudart_is_blocking(stream)
                 ? cudaStreamDefault
                 : cudaStreamNonBlocking;
  return error;
}

cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long *streamId) {
  struct cudart_stream stream;
  if (streamId == NULL)
    return cudart_fail_null(__func__, "streamId");
  cudaError_t error = cudart_find_stream(hStream, &stream);
  if (error == cudaSuccess)
    *streamId = ((unsigned long long)stream.device + 1) << 32 | (unsigned)stream.number;
  return error;
}

cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int *device) {
  struct cudart_stream stream;
  if (device == NULL)
    return cudart_fail_null(__func__, "device");
  cudaError_t error = cudart_find_stream(hStream, &stream);
  if (error == cudaSuccess)
    *device = stream.device;
  return error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  struct cudart_stream found;
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  openreg_status status = openreg_stream_query(found.device, found.number);
  if (status == OPENREG_OK && !cudart_order_is_idle(found))
    status = OPENREG_NOT_READY;
  if (status == OPENREG_OK) {
    cudart_report_order(found);
    cudart_report(OPENREG_OPERATION_SYNC_STREAM, found, NULL);
  }
  return cudart_return(status);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  struct cudart_stream found;
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  openreg_status status = cudart_order(found);
  if (status == OPENREG_OK) {
    cudart_report(OPENREG_OPERATION_SYNC_STREAM, found, NULL);
    status = openreg_stream_synchronize(found.device, found.number);
  }
  if (status == OPENREG_OK)
    cudart_trim_pools(found.device);
  return cudart_return(status);
}

/* ---- submission ------------------------------------------------------------------------------ */

/* A copy of the caller's work, on the heap. The submitter and the runner share it: in blocking mode
 * a failure may be the work's own, and then the submitter must know that it has run. */
struct piece {
  struct cudart_work work;
  atomic_int holders;
  bool has_run;
  max_align_t data[];
};

static void piece_destroy(void *data) {
  struct piece *piece = data;
  if (piece->work.drop != NULL)
    piece->work.drop(piece->data);
  free(piece);
}

static void piece_release(struct piece *piece) {
  if (atomic_fetch_sub(&piece->holders, 1) == 1)
    piece_destroy(piece);
}

static openreg_status piece_run(void *data) {
  struct piece *piece = data;
  return piece->work.run(piece->data);
}

static openreg_status piece_run_once(void *data) {
  struct piece *piece = data;
  piece->has_run = true;
  openreg_status status = piece_run(piece);
  piece_release(piece);
  return status;
}

static openreg_status capture(struct cudart_stream stream, struct piece *piece) {
  const struct openreg_graph_work work = {
      .run = piece_run, .destroy = piece_destroy, .data = piece, .name = piece->work.name};
  return openreg_capture_add(stream.device, stream.number, &work);
}

static openreg_status run_here(struct cudart_stream stream, const struct cudart_work *work,
                               const void *data) {
  openreg_status status = openreg_stream_try_begin_inline(stream.device, stream.number);
  if (status != OPENREG_OK)
    return status;
  status = work->run(data);
  openreg_stream_end_inline(stream.device, stream.number);
  if (work->drop != NULL)
    work->drop(data);
  return status;
}

openreg_status cudart_submit(struct cudart_stream stream, const struct cudart_work *work,
                             const void *data, size_t bytes) {
  bool captures = openreg_stream_is_capturing(stream.device, stream.number);
  openreg_status status = captures ? OPENREG_OK : cudart_order(stream);
  if (status == OPENREG_OK && work->report != NULL)
    work->report(stream, work->name, data);
  if (status == OPENREG_OK && !captures && work->is_short) {
    status = run_here(stream, work, data);
    if (status != OPENREG_NOT_READY)
      return status;
    status = OPENREG_OK;
  }
  struct piece *piece = status == OPENREG_OK ? malloc(sizeof *piece + bytes) : NULL;
  if (piece == NULL) {
    if (work->drop != NULL)
      work->drop(data);
    return status != OPENREG_OK
               ? status
               : openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory to queue work");
  }
  piece->work = *work;
  piece->has_run = false;
  atomic_init(&piece->holders, 2);
  memcpy(piece->data, data, bytes);
  if (captures)
    return capture(stream, piece);
  status = openreg_stream_launch(stream.device, stream.number, piece_run_once, piece);
  if (status != OPENREG_OK && !piece->has_run)
    piece_release(piece);
  piece_release(piece);
  return status;
}

/* ---- host functions -------------------------------------------------------------------------- */

struct host_call {
  cudaHostFn_t function;
  cudaStreamCallback_t callback; /* instead of `function` */
  cudaStream_t stream;
  struct cudart_stream submitted_to;
  void *data;
};

static openreg_status run_host_call(const void *data) {
  const struct host_call *call = data;
  cudart_report(OPENREG_OPERATION_BEGIN_CALL, call->submitted_to, NULL);
  if (call->callback != NULL)
    call->callback(call->stream, cudaSuccess, call->data);
  else
    call->function(call->data);
  cudart_report(OPENREG_OPERATION_END_CALL, call->submitted_to, NULL);
  return OPENREG_OK;
}

/* The function may tell the program how far the stream's work is, in a way that nobody sees. So the
 * host counts as waiting for the stream. */
static void report_host_call(struct cudart_stream stream, const char *name, const void *data) {
  (void)name;
  (void)data;
  if (!openreg_stream_is_capturing(stream.device, stream.number))
    cudart_report(OPENREG_OPERATION_SYNC_STREAM, stream, NULL);
}

static cudaError_t submit_host_call(struct host_call call) {
  static const struct cudart_work work = {
      .run = run_host_call, .report = report_host_call, .name = "host function"};
  cudaError_t error = cudart_find_stream(call.stream, &call.submitted_to);
  return error == cudaSuccess
             ? cudart_return(cudart_submit(call.submitted_to, &work, &call, sizeof call))
             : error;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData) {
  if (fn == NULL)
    return cudart_fail_null(__func__, "fn");
  return submit_host_call((struct host_call){.function = fn, .stream = stream, .data = userData});
}

/* In a capture the callback becomes a node, as a host function does; CUDA refuses it there. */
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *userData, unsigned int flags) {
  if (callback == NULL || flags != 0)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaStreamAddCallback: expected a callback, and flags 0");
  return submit_host_call(
      (struct host_call){.callback = callback, .stream = stream, .data = userData});
}
