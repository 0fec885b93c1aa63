/* internal.h: what the files of the CUDA runtime share.
 *
 *     error.c         last errors, sentences, names            order.c      blocking streams
 *     device.c        devices, versions, peers                 streams.c    streams, host functions
 *     properties.c    properties and attributes                events.c     events
 *     kernels.c       registration and refusal of kernels      capture.c    capture and graphs
 *     allocations.c   the table of device memory               copies.c     copies and fills
 *     memory.c        cudaMalloc, host memory, pointers        ipc.c        other processes
 *     mempool.c       cudaMallocAsync and pools                refused.c    all that openreg lacks
 *     planning.c      the planner's runtime, which does nothing
 *
 * The runtime uses public functions of the layers only, because it is a library of its own beside
 * libopenreg.so. All functions here may be called from any thread.
 */
#ifndef OPENREG_CUDART_INTERNAL_H
#define OPENREG_CUDART_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/allocator.h"
#include "cudart/include/cuda_runtime_api.h"
#include "device/capture.h"
#include "device/device.h"
#include "device/faults.h"
#include "device/operations.h"

#pragma GCC visibility push(hidden)

/* ---- error.c --------------------------------------------------------------------------------- */

/* Keeps an error as the thread's last error, with a sentence (printf style), and returns it. The
 * sentence is also the thread's openreg_last_error. */
cudaError_t cudart_fail(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Translates a status. Keeps errors with the layer's sentence. */
cudaError_t cudart_return(openreg_status status);

/* The same where the layer's code means something more specific. */
cudaError_t cudart_return_as(openreg_status status, openreg_status special, cudaError_t error);

/* Fails with cudaErrorInvalidValue, because an argument is NULL. */
cudaError_t cudart_fail_null(const char *function, const char *argument);

/* Fails with cudaErrorNotSupported. */
cudaError_t cudart_refuse(const char *function, const char *reason);

/* Makes `device` the one to which a failure of work belongs that this call reports. Fails with
 * LAUNCH_FAILURE if an earlier call reported one. */
openreg_status cudart_use_device(int device);
void cudart_forget_failure(int device);

/* ---- device.c -------------------------------------------------------------------------------- */

/* Initializes devices, and returns the thread's current one, which has a context then. Errors: as
 * openreg_initialize, cudart_use_device and openreg_device_create_context. */
openreg_status cudart_enter(int *device);

/* Whether this process sees the device; fails with cudaErrorInvalidDevice if not. */
cudaError_t cudart_check_device(int device);

/* Waits for all work of all devices, if there is any, and leaves failures for later. For callers
 * that take memory away from the program. */
openreg_status cudart_drain_all(void);

/* ---- streams.c and order.c ------------------------------------------------------------------- */

struct cudart_stream {
  int device, number;
};

/* Translates a handle. Enters the device. Errors: cudaErrorInvalidResourceHandle, and those of
 * cudart_enter. */
cudaError_t cudart_find_stream(cudaStream_t handle, struct cudart_stream *stream);

/* Reports to the process's observer what the program does. Not for calls that this library makes
 * for itself. No lock may be held, because the observer may wait for Python's. */
static inline void cudart_report(openreg_operation_kind kind, struct cudart_stream stream,
                                 const openreg_event *event) {
  openreg_operation_report(&(openreg_operation){
      .kind = kind, .device = stream.device, .stream = stream.number, .event = event});
}

/* The same for an operation of a whole device. */
static inline void cudart_report_sync(int device) {
  openreg_operation_report(
      &(openreg_operation){.kind = OPENREG_OPERATION_SYNC_DEVICE, .device = device});
}

/* The same for memory that is allocated or freed. A lock may be held for OPENREG_OPERATION_FREE. */
static inline void cudart_report_memory(openreg_operation_kind kind, int device,
                                        const void *address, size_t bytes) {
  openreg_operation_report(
      &(openreg_operation){.kind = kind, .device = device, .to = {address, bytes, 1, bytes}});
}

/* How CUDA orders the default stream and blocking streams, that is, streams that were created
 * without cudaStreamNonBlocking: work on one of them waits for earlier work on the other. Called
 * before each submission. Errors: CAPTURE_IMPLICIT (the default stream would wait for a capturing
 * stream). */
openreg_status cudart_order(struct cudart_stream stream);

/* Reports this order without work: the host has found the stream and those before it idle. */
void cudart_report_order(struct cudart_stream stream);

/* Whether the stream, and all streams that it would wait for, are idle. */
bool cudart_order_is_idle(struct cudart_stream stream);

void cudart_set_blocking(struct cudart_stream stream, bool is_blocking);
bool cudart_is_blocking(struct cudart_stream stream);

/* A piece of work. `run` is called with a copy of the data, and must not keep it. */
struct cudart_work {
  openreg_status (*run)(const void *data);
  void (*drop)(const void *data); /* frees what the data refers to; NULL: nothing */
  /* Reports the work; called before it is submitted, after the order of blocking streams. */
  void (*report)(struct cudart_stream stream, const char *name, const void *data);
  const char *name; /* static storage */
  bool is_short;    /* may run on the calling thread */
};

/* Submits work to a stream, or adds it to the stream's capture. Copies `bytes` of data. */
openreg_status cudart_submit(struct cudart_stream stream, const struct cudart_work *work,
                             const void *data, size_t bytes);

/* ---- events.c -------------------------------------------------------------------------------- */

struct CUevent_st {
  openreg_event *event;
  unsigned flags;
};

/* ---- allocations.c --------------------------------------------------------------------------- */

/* Device memory of this library. */
struct cudart_allocation {
  char *address;
  size_t bytes; /* as requested; of a pool: the size of the block */
  int device;
  cudaMemPool_t pool; /* NULL: cudaMalloc or cudaMallocManaged */
  bool is_managed, is_exported;
};

/* Takes memory from the device and enters it into the table. Errors: as openreg_device_malloc. */
openreg_status cudart_allocate(int device, size_t bytes, cudaMemPool_t pool, void **address);

/* Removes the memory that starts at `address` from the table, reports that, and returns it to the
 * device after the device's work. Memory that other processes have open is returned later. Errors:
 * INVALID_ARGUMENT (not in the table), and those of openreg_device_free. */
openreg_status cudart_release(void *address);

/* Finds the memory that contains an address. */
bool cudart_find_allocation(const void *address, struct cudart_allocation *found);

/* Lets the host access the memory that starts at `address`, until it is released. Errors: as
 * openreg_arena_set_host_access. */
openreg_status cudart_make_managed(void *address);
void cudart_mark_exported(void *address);

/* Releases all memory of a device. */
void cudart_release_device(int device);

/* ---- mempool.c ------------------------------------------------------------------------------- */

/* Returns unused memory of the device's pools beyond their release thresholds to the device. Called
 * when the host has waited for work. */
void cudart_trim_pools(int device);

/* Frees memory of a pool after all work of the device: cudaFree of memory of cudaMallocAsync. */
openreg_status cudart_free_pooled(const struct cudart_allocation *allocation);

/* Forgets the device's pools. Their memory must have been released. */
void cudart_reset_pools(int device);

/* ---- planning.c ------------------------------------------------------------------------------ */

/* Whether kernels, copies and fills do nothing in this process. */
bool cudart_is_planning(void);

/* Whether an address is planned device memory, which must not be accessed. */
bool cudart_plan_contains(const void *address);

/* Writes what the host reads from planned memory. */
void cudart_plan_read(char *to, size_t bytes);

/* The architecture of the code that the device would run, such as 90. */
int cudart_plan_binary_version(void);

#pragma GCC visibility pop
#endif
