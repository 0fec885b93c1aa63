/* events.c: events. A cudaEvent_t is a pointer to an object of this file over an openreg_event. */
#include "cudart/internal.h"

#include <stdlib.h>
#include <string.h>

enum { KNOWN_FLAGS = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess };

static cudaError_t fail_handle(const char *function, const char *why) {
  return cudart_fail(cudaErrorInvalidResourceHandle, "%s: %s", function, why);
}

static cudaError_t wrap(openreg_event *event, unsigned flags, cudaEvent_t *result) {
  struct CUevent_st *wrapper = malloc(sizeof *wrapper);
  if (wrapper == NULL) {
    openreg_event_destroy(event);
    return cudart_return(
        openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an event"));
  }
  wrapper->event = event;
  wrapper->flags = flags;
  *result = wrapper;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  if (event == NULL)
    return cudart_fail_null(__func__, "event");
  bool is_shared = (flags & cudaEventInterprocess) != 0;
  bool has_timing = (flags & cudaEventDisableTiming) == 0;
  if ((flags & ~(unsigned)KNOWN_FLAGS) != 0 || (is_shared && has_timing))
    return cudart_fail(cudaErrorInvalidValue, "cudaEventCreateWithFlags: invalid flags 0x%x%s",
                       flags,
                       is_shared ? ": an interprocess event needs cudaEventDisableTiming" : "");
  int device;
  openreg_event *created;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK)
    status = openreg_event_create(device, has_timing, &created);
  return status == OPENREG_OK ? wrap(created, flags, event) : cudart_return(status);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == NULL)
    return fail_handle(__func__, "event is NULL");
  cudart_report(OPENREG_OPERATION_FORGET, (struct cudart_stream){0}, event->event);
  openreg_event_destroy(event->event);
  free(event);
  return cudaSuccess;
}

/* cudaEventRecordExternal would make the recording a node of its own in a capture. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  if (event == NULL)
    return fail_handle("cudaEventRecord", "event is NULL");
  if ((flags & ~(unsigned)cudaEventRecordExternal) != 0)
    return cudart_fail(cudaErrorInvalidValue, "cudaEventRecordWithFlags: invalid flags 0x%x",
                       flags);
  struct cudart_stream found;
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  bool is_default = found.number == OPENREG_STREAM_DEFAULT;
  int device = openreg_event_device(event->event);
  if (found.device != device && !is_default)
    return fail_handle("cudaEventRecord", "event and stream belong to different devices");
  if (found.device != device)
    return fail_handle("cudaEventRecord", "the event does not belong to the current device");
  bool captures = openreg_stream_is_capturing(device, found.number);
  if (captures && flags == cudaEventRecordExternal)
    return cudart_refuse("cudaEventRecordWithFlags", "external events in a capture");
  openreg_status status = captures ? OPENREG_OK : cudart_order(found);
  if (status == OPENREG_OK && !captures)
    cudart_report(OPENREG_OPERATION_RECORD, found, event->event);
  if (status == OPENREG_OK)
    status = openreg_event_record(event->event, found.number);
  return cudart_return(status);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event == NULL)
    return fail_handle(__func__, "event is NULL");
  openreg_status status = cudart_use_device(openreg_event_device(event->event));
  if (status == OPENREG_OK)
    status = openreg_event_query(event->event);
  if (status == OPENREG_OK)
    cudart_report(OPENREG_OPERATION_SYNC_EVENT, (struct cudart_stream){0}, event->event);
  return cudart_return(status);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event == NULL)
    return fail_handle(__func__, "event is NULL");
  openreg_status status = cudart_use_device(openreg_event_device(event->event));
  if (status == OPENREG_OK) {
    cudart_report(OPENREG_OPERATION_SYNC_EVENT, (struct cudart_stream){0}, event->event);
    status = openreg_event_synchronize(event->event);
  }
  if (status == OPENREG_OK)
    cudart_trim_pools(openreg_event_device(event->event));
  return cudart_return(status);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  if (ms == NULL)
    return cudart_fail_null(__func__, "ms");
  if (start == NULL || end == NULL)
    return fail_handle(__func__, start == NULL ? "start is NULL" : "end is NULL");
  double milliseconds;
  openreg_status status = openreg_event_elapsed_ms(start->event, end->event, &milliseconds);
  if (status == OPENREG_OK) { /* both were reached */
    cudart_report(OPENREG_OPERATION_SYNC_EVENT, (struct cudart_stream){0}, start->event);
    cudart_report(OPENREG_OPERATION_SYNC_EVENT, (struct cudart_stream){0}, end->event);
    *ms = (float)milliseconds;
  }
  return cudart_return_as(status, OPENREG_INVALID_ARGUMENT, cudaErrorInvalidResourceHandle);
}

#if CUDART_VERSION < 13000
cudaError_t cudaEventElapsedTime_v2(float *ms, cudaEvent_t start, cudaEvent_t end) {
  return cudaEventElapsedTime(ms, start, end);
}
#endif

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  if (event == NULL)
    return fail_handle(__func__, "event is NULL");
  if ((flags & ~(unsigned)cudaEventWaitExternal) != 0)
    return cudart_fail(cudaErrorInvalidValue, "cudaStreamWaitEvent: invalid flags 0x%x", flags);
  struct cudart_stream found;
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  bool captures = openreg_stream_is_capturing(found.device, found.number);
  if (captures && flags == cudaEventWaitExternal)
    return cudart_refuse(__func__, "external events in a capture");
  openreg_status status = captures ? OPENREG_OK : cudart_order(found);
  if (status == OPENREG_OK && !captures)
    cudart_report(OPENREG_OPERATION_WAIT, found, event->event);
  if (status == OPENREG_OK)
    status = openreg_stream_wait_event(found.device, found.number, event->event);
  return cudart_return(status);
}

/* ---- other processes ------------------------------------------------------------------------- */

_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(openreg_ipc_handle), "handles have 64 bytes");

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
  if (handle == NULL || event == NULL)
    return cudart_fail_null(__func__, handle == NULL ? "handle" : "event");
  if ((event->flags & cudaEventInterprocess) == 0)
    return cudart_fail(
        cudaErrorInvalidResourceHandle,
        "cudaIpcGetEventHandle: the event was created without cudaEventInterprocess");
  openreg_ipc_handle exported;
  openreg_status status = openreg_event_export(event->event, &exported);
  if (status == OPENREG_OK)
    memcpy(handle, &exported, sizeof exported);
  return cudart_return(status);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
  if (event == NULL)
    return cudart_fail_null(__func__, "event");
  openreg_ipc_handle exported;
  memcpy(&exported, &handle, sizeof exported);
  openreg_event *imported;
  openreg_status status = openreg_event_import(&exported, &imported);
  return status == OPENREG_OK
             ? wrap(imported, cudaEventInterprocess | cudaEventDisableTiming, event)
             : cudart_return_as(status, OPENREG_INVALID_ARGUMENT, cudaErrorInvalidResourceHandle);
}
