/* error.c: each thread's last error and the sentence that explains it; names and texts of errors.
 *
 * CUDA keeps one error per thread until cudaGetLastError. The sentence is kept longer, until the
 * thread's next failure: callers such as PyTorch clear the error first and then compose a message.
 * It lies on the heap, because a library that is loaded late has little static thread-local
 * storage.
 *
 * A failure of work sticks to its device, as in CUDA: once a call has reported it, all calls that
 * use the device return it, until cudaDeviceReset. The device itself stays usable
 * (device/device.h), and PyTorch uses it without this library.
 */
#include "cudart/internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCE_BYTES = 1024 };

struct explained {
  cudaError_t error;
  char sentence[SENTENCE_BYTES];
};

static _Thread_local cudaError_t last_error;
static _Thread_local struct explained *explained; /* NULL before the thread's first failure */
static pthread_key_t at_thread_end;               /* its destructor frees `explained` */

static void free_explained(void *text) {
  explained = NULL;
  free(text);
}

static void prepare(void) {
  (void)pthread_key_create(&at_thread_end, free_explained);
}

/* Without host memory there is no sentence; the error is kept all the same. */
static cudaError_t keep(cudaError_t error, const char *sentence) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  last_error = error;
  if (explained == NULL) {
    pthread_once(&once, prepare);
    explained = malloc(sizeof *explained);
    pthread_setspecific(at_thread_end, explained);
  }
  if (explained != NULL) {
    explained->error = error;
    snprintf(explained->sentence, sizeof explained->sentence, "%s", sentence);
  }
  return error;
}

/* ---- failed devices -------------------------------------------------------------------------- */

static struct {
  atomic_bool has_failed;
  char sentence[SENTENCE_BYTES]; /* protected by the mutex */
} devices[OPENREG_MAX_DEVICES];
static pthread_mutex_t devices_mutex = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local int used_device; /* of the thread's current call */

static bool has_failed(int device) {
  return atomic_load_explicit(&devices[device].has_failed, memory_order_acquire);
}

static void fail_device(int device, const char *sentence) {
  pthread_mutex_lock(&devices_mutex);
  if (!has_failed(device)) {
    snprintf(devices[device].sentence, SENTENCE_BYTES, "%s", sentence);
    atomic_store_explicit(&devices[device].has_failed, true, memory_order_release);
  }
  pthread_mutex_unlock(&devices_mutex);
}

openreg_status cudart_use_device(int device) {
  used_device = device;
  if (!has_failed(device))
    return OPENREG_OK;
  char sentence[SENTENCE_BYTES];
  pthread_mutex_lock(&devices_mutex);
  snprintf(sentence, sizeof sentence, "%s", devices[device].sentence);
  pthread_mutex_unlock(&devices_mutex);
  return openreg_fail(OPENREG_LAUNCH_FAILURE, "%s", sentence);
}

void cudart_forget_failure(int device) {
  atomic_store_explicit(&devices[device].has_failed, false, memory_order_release);
}

/* ---- errors of this library ------------------------------------------------------------------ */

static openreg_status status_of(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? OPENREG_OUT_OF_MEMORY
         : error == cudaErrorInvalidDevice  ? OPENREG_INVALID_DEVICE
         : error == cudaErrorNotSupported   ? OPENREG_NOT_PERMITTED
                                            : OPENREG_INVALID_ARGUMENT;
}

cudaError_t cudart_fail(cudaError_t error, const char *format, ...) {
  char sentence[SENTENCE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  (void)openreg_fail(status_of(error), "%s", sentence);
  return keep(error, sentence);
}

cudaError_t cudart_fail_null(const char *function, const char *argument) {
  return cudart_fail(cudaErrorInvalidValue, "%s: %s is NULL", function, argument);
}

cudaError_t cudart_refuse(const char *function, const char *reason) {
  return cudart_fail(cudaErrorNotSupported, "%s: openreg does not support this function%s%s",
                     function, reason[0] != '\0' ? ": " : "", reason);
}

static cudaError_t no_such_device(void) {
  int count;
  return openreg_device_count(&count) == OPENREG_OK && count == 0 ? cudaErrorNoDevice
                                                                  : cudaErrorInvalidDevice;
}

static cudaError_t error_of(openreg_status status) {
  switch (status) {
  case OPENREG_OK:
    return cudaSuccess;
  case OPENREG_INVALID_ARGUMENT:
  case OPENREG_INVALID_ADDRESS:
    return cudaErrorInvalidValue;
  case OPENREG_INVALID_CONFIGURATION:
  case OPENREG_BAD_FORK:
    return cudaErrorInitializationError;
  case OPENREG_INVALID_DEVICE:
    return no_such_device();
  case OPENREG_OUT_OF_MEMORY:
    return cudaErrorMemoryAllocation;
  case OPENREG_NOT_READY:
    return cudaErrorNotReady;
  case OPENREG_SYSTEM:
    return cudaErrorOperatingSystem;
  case OPENREG_NOT_PERMITTED:
    return cudaErrorNotPermitted;
  case OPENREG_LAUNCH_FAILURE:
    return cudaErrorLaunchFailure;
  case OPENREG_CAPTURE_UNSUPPORTED:
    return cudaErrorStreamCaptureUnsupported;
  case OPENREG_CAPTURE_INVALIDATED:
    return cudaErrorStreamCaptureInvalidated;
  case OPENREG_CAPTURE_MERGE:
    return cudaErrorStreamCaptureMerge;
  case OPENREG_CAPTURE_UNMATCHED:
    return cudaErrorStreamCaptureUnmatched;
  case OPENREG_CAPTURE_UNJOINED:
    return cudaErrorStreamCaptureUnjoined;
  case OPENREG_CAPTURE_ISOLATION:
    return cudaErrorStreamCaptureIsolation;
  case OPENREG_CAPTURE_IMPLICIT:
    return cudaErrorStreamCaptureImplicit;
  case OPENREG_CAPTURED_EVENT:
    return cudaErrorCapturedEvent;
  case OPENREG_CAPTURE_WRONG_THREAD:
    return cudaErrorStreamCaptureWrongThread;
  case OPENREG_COMMUNICATION_FAILURE:
    break;
  }
  return cudaErrorUnknown;
}

cudaError_t cudart_return(openreg_status status) {
  return cudart_return_as(status, OPENREG_OK, cudaSuccess);
}

cudaError_t cudart_return_as(openreg_status status, openreg_status special, cudaError_t error) {
  if (status == OPENREG_OK)
    return cudaSuccess;
  char sentence[SENTENCE_BYTES];
  snprintf(sentence, sizeof sentence, "%s",
           status == OPENREG_NOT_READY ? "" : openreg_last_error());
  if (status == OPENREG_LAUNCH_FAILURE)
    fail_device(used_device, sentence);
  return keep(status == special ? error : error_of(status), sentence);
}

/* ---- the interface --------------------------------------------------------------------------- */

const char *openreg_cudart_sentence(cudaError_t error) {
  return explained != NULL && explained->error == error ? explained->sentence : "";
}

cudaError_t cudaPeekAtLastError(void) {
  if (last_error != cudaSuccess)
    return last_error;
  return has_failed(openreg_device_current()) ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

static const char unrecognized[] = "unrecognized error code";

const char *cudaGetErrorName(cudaError_t error) {
  switch ((int)error) {
#define X(name, number, text)                                                                      \
  case number:                                                                                     \
    return #name;
    CUDA_ERROR_LIST(X)
#undef X
  default:
    return unrecognized;
  }
}

const char *cudaGetErrorString(cudaError_t error) {
  switch ((int)error) {
#define X(name, number, text)                                                                      \
  case number:                                                                                     \
    return text;
    CUDA_ERROR_LIST(X)
#undef X
  default:
    return unrecognized;
  }
}
