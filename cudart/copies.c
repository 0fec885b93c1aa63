/* copies.c: copies and fills.
 *
 * Every copy is work of a stream. The functions without "Async" use the default stream of the
 * current device and wait for it. The others behave as CUDA's do, depending on the host memory:
 *
 * - Pinned memory: the call returns at once, unless the copy is short and the stream is idle.
 * - Pageable memory as source: the program may change it after the call. So a short copy takes the
 *   bytes along, and a long one is awaited.
 * - Pageable memory as destination: the call returns when the bytes are there.
 *
 * A captured copy reads and writes the memory when the graph is launched.
 */
#include "cudart/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
  SHORT_BYTES = 256 << 10, /* runs on the calling thread if the stream is idle */
  STAGED_BYTES = 64 << 10, /* taken along; CUDA's limit, too */
};

/* `rows` rows of `bytes` bytes. */
struct copy {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, bytes, rows;
  char *staged; /* owned copy of the source; NULL: none */
};

struct fill {
  char *to;
  size_t pitch, bytes, rows;
  int value;
};

static bool is_device(const void *address) {
  return openreg_arena_device_of(address) >= 0;
}

/* ---- reports --------------------------------------------------------------------------------- */

static openreg_operation_range range_of(const void *address, size_t bytes, size_t rows,
                                        size_t pitch) {
  return (openreg_operation_range){address, bytes, rows, pitch};
}

static openreg_operation_range target_of(const struct copy *copy) {
  return range_of(copy->to, copy->bytes, copy->rows, copy->to_pitch);
}

static openreg_operation_range source_of(const struct copy *copy) {
  return range_of(copy->from, copy->bytes, copy->rows, copy->from_pitch);
}

static void report_copy(struct cudart_stream stream, const char *name, const void *data) {
  const struct copy *copy = data;
  openreg_operation_report(&(openreg_operation){.kind = OPENREG_OPERATION_COPY,
                                                .device = stream.device,
                                                .stream = stream.number,
                                                .name = name,
                                                .to = target_of(copy),
                                                .from = source_of(copy)});
}

static void report_fill(struct cudart_stream stream, const char *name, const void *data) {
  const struct fill *fill = data;
  openreg_operation_report(
      &(openreg_operation){.kind = OPENREG_OPERATION_FILL,
                           .device = stream.device,
                           .stream = stream.number,
                           .name = name,
                           .to = range_of(fill->to, fill->bytes, fill->rows, fill->pitch)});
}

/* Reports the beginning or the end of accesses to host memory, on the thread that performs them. */
static void report_accesses(openreg_operation_kind kind, openreg_operation_range to,
                            openreg_operation_range from) {
  openreg_operation operation = {.kind = kind};
  if (to.address != NULL && !is_device(to.address))
    operation.to = to;
  if (from.address != NULL && !is_device(from.address))
    operation.from = from;
  if (operation.to.address != NULL || operation.from.address != NULL)
    openreg_operation_report(&operation);
}

/* ---- work ------------------------------------------------------------------------------------ */

static openreg_status copy_rows(const struct copy *copy) {
  const char *from = copy->staged != NULL ? copy->staged : copy->from;
  bool is_dense =
      copy->rows == 1 || (copy->to_pitch == copy->bytes && copy->from_pitch == copy->bytes);
  if (is_dense)
    return openreg_copy(copy->to, from, copy->bytes * copy->rows);
  openreg_status status = OPENREG_OK;
  for (size_t i = 0; status == OPENREG_OK && i < copy->rows; i++)
    status = openreg_copy(copy->to + i * copy->to_pitch, from + i * copy->from_pitch, copy->bytes);
  return status;
}

static openreg_status run_copy(const void *data) {
  const struct copy *copy = data;
  openreg_operation_range to = target_of(copy), from = source_of(copy);
  report_accesses(OPENREG_OPERATION_BEGIN_ACCESS, to, from);
  openreg_status status = copy_rows(copy);
  report_accesses(OPENREG_OPERATION_END_ACCESS, to, from);
  return status;
}

static void drop_copy(const void *data) {
  free(((const struct copy *)data)->staged);
}

static openreg_status run_fill(const void *data) {
  const struct fill *fill = data;
  bool is_host = !is_device(fill->to);
  openreg_operation_range to = range_of(fill->to, fill->bytes, fill->rows, fill->pitch);
  openreg_status status = OPENREG_OK;
  report_accesses(OPENREG_OPERATION_BEGIN_ACCESS, to, (openreg_operation_range){0});
  for (size_t i = 0; status == OPENREG_OK && i < fill->rows; i++) {
    char *row = fill->to + i * fill->pitch;
    if (is_host)
      memset(row, fill->value, fill->bytes);
    else
      status = openreg_fill(row, fill->value, fill->bytes);
  }
  report_accesses(OPENREG_OPERATION_END_ACCESS, to, (openreg_operation_range){0});
  return status;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Memory that a device can reach: its own, and pinned memory. */
static bool is_reachable(const void *address) {
  return is_device(address) || openreg_pinned_contains(address);
}

/* The end of a range of device memory must lie in the same arena. */
static bool is_whole(const char *address, size_t pitch, size_t bytes, size_t rows) {
  return openreg_arena_device_of(address) ==
         openreg_arena_device_of(address + (rows - 1) * pitch + bytes - 1);
}

static cudaError_t check_copy(const struct copy *copy, enum cudaMemcpyKind kind) {
  if ((int)kind < cudaMemcpyHostToHost || (int)kind > cudaMemcpyDefault)
    return cudart_fail(cudaErrorInvalidMemcpyDirection, "cudaMemcpy: unknown kind %d", (int)kind);
  if (copy->to == NULL || copy->from == NULL)
    return cudart_fail_null("cudaMemcpy", copy->to == NULL ? "dst" : "src");
  if (copy->rows > 1 && (copy->to_pitch < copy->bytes || copy->from_pitch < copy->bytes))
    return cudart_fail(cudaErrorInvalidPitchValue,
                       "cudaMemcpy2D: a pitch is less than the width of %zu bytes", copy->bytes);
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  bool is_host_kind = kind == cudaMemcpyHostToHost;
  bool fits = is_host_kind ? !is_device(copy->to) && !is_device(copy->from)
                           : (!to_device || is_reachable(copy->to)) &&
                                 (!from_device || is_reachable(copy->from)) &&
                                 !(kind == cudaMemcpyHostToDevice && is_device(copy->from)) &&
                                 !(kind == cudaMemcpyDeviceToHost && is_device(copy->to));
  if (!fits)
    return cudart_fail(
        cudaErrorInvalidValue,
        "cudaMemcpy: kind %d does not match the memory: destination %p is %s, source "
        "%p is %s",
        (int)kind, (void *)copy->to, is_device(copy->to) ? "on a device" : "on the host",
        (const void *)copy->from, is_device(copy->from) ? "on a device" : "on the host");
  if (!is_whole(copy->to, copy->to_pitch, copy->bytes, copy->rows) ||
      !is_whole(copy->from, copy->from_pitch, copy->bytes, copy->rows))
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaMemcpy: %zu bytes leave the memory of the device", copy->bytes);
  return cudaSuccess;
}

/* ---- planning ---------------------------------------------------------------------------------
 */

/* The planner's device memory has no contents (planning.c). */
static void plan_copy(const struct copy *copy) {
  if (cudart_plan_contains(copy->to))
    return;
  for (size_t i = 0; i < copy->rows; i++) {
    char *to = copy->to + i * copy->to_pitch;
    if (cudart_plan_contains(copy->from))
      cudart_plan_read(to, copy->bytes);
    else
      memmove(to, copy->from + i * copy->from_pitch, copy->bytes);
  }
}

/* ---- copies ---------------------------------------------------------------------------------- */

static openreg_status synchronize(struct cudart_stream stream) {
  cudart_report(OPENREG_OPERATION_SYNC_STREAM, stream, NULL);
  return openreg_stream_synchronize(stream.device, stream.number);
}

static bool is_pageable(const void *address) {
  return !is_device(address) && !openreg_pinned_contains(address);
}

static openreg_status submit_copy(struct cudart_stream stream, struct copy *copy, bool waits) {
  const char *name = waits ? "cudaMemcpy" : "cudaMemcpyAsync";
  size_t bytes = copy->bytes * copy->rows;
  bool captures = openreg_stream_is_capturing(stream.device, stream.number);
  bool is_stageable = copy->rows == 1 && bytes <= STAGED_BYTES;
  bool is_short = waits || bytes <= SHORT_BYTES;
  bool promises_to_wait = waits || is_pageable(copy->to);
  if (!captures && !waits) {
    bool leaves_source = is_pageable(copy->from);
    bool is_busy = !openreg_stream_is_idle(stream.device, stream.number);
    if (leaves_source && is_stageable && is_busy)
      copy->staged = malloc(bytes);
    if (copy->staged != NULL)
      memcpy(copy->staged, copy->from, bytes);
    waits = (leaves_source && copy->staged == NULL) || is_pageable(copy->to);
    is_short |= waits;
  }
  const struct cudart_work work = {.run = run_copy,
                                   .drop = drop_copy,
                                   .report = report_copy,
                                   .name = name,
                                   .is_short = is_short};
  openreg_status status = cudart_submit(stream, &work, copy, sizeof *copy);
  if (status != OPENREG_OK || !waits || captures)
    return status;
  /* With a pageable source, CUDA only promises that the source may be changed. */
  return promises_to_wait ? synchronize(stream)
                          : openreg_stream_synchronize(stream.device, stream.number);
}

static cudaError_t start_copy(struct copy copy, enum cudaMemcpyKind kind, cudaStream_t handle,
                              bool waits) {
  struct cudart_stream stream;
  cudaError_t error = cudart_find_stream(handle, &stream);
  if (error != cudaSuccess || copy.bytes == 0 || copy.rows == 0)
    return error;
  if (cudart_is_planning()) {
    plan_copy(&copy);
    return cudaSuccess;
  }
  if (waits) {
    openreg_status status = openreg_capture_refuse_unsafe("cudaMemcpy");
    if (status != OPENREG_OK)
      return cudart_return(status);
  }
  error = check_copy(&copy, kind);
  return error == cudaSuccess ? cudart_return(submit_copy(stream, &copy, waits)) : error;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return start_copy((struct copy){dst, src, dpitch, spitch, width, height, NULL}, kind, stream,
                    false);
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind) {
  return start_copy((struct copy){dst, src, dpitch, spitch, width, height, NULL}, kind, NULL, true);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(dst, count, src, count, count, 1, kind, stream);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind) {
  return cudaMemcpy2D(dst, count, src, count, count, 1, kind);
}

static cudaError_t check_peers(int dst_device, int src_device) {
  cudaError_t error = cudart_check_device(dst_device);
  return error == cudaSuccess ? cudart_check_device(src_device) : error;
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                size_t count, cudaStream_t stream) {
  cudaError_t error = check_peers(dstDevice, srcDevice);
  return error == cudaSuccess ? cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream)
                              : error;
}

static openreg_status drain(int device) {
  cudart_report(OPENREG_OPERATION_SYNC_STREAM,
                (struct cudart_stream){device, OPENREG_STREAM_DEFAULT}, NULL);
  return openreg_stream_drain(device, OPENREG_STREAM_DEFAULT);
}

/* Waits for the default streams of both devices first, as CUDA does. */
cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count) {
  cudaError_t error = check_peers(dstDevice, srcDevice);
  openreg_status status = OPENREG_OK;
  if (error == cudaSuccess && openreg_is_initialized()) {
    status = drain(dstDevice);
    if (status == OPENREG_OK)
      status = drain(srcDevice);
  }
  if (error == cudaSuccess)
    error = cudart_return(status);
  return error == cudaSuccess ? cudaMemcpy(dst, src, count, cudaMemcpyDeviceToDevice) : error;
}

/* ---- fills ----------------------------------------------------------------------------------- */

static cudaError_t start_fill(struct fill fill, cudaStream_t handle, bool waits) {
  struct cudart_stream stream;
  cudaError_t error = cudart_find_stream(handle, &stream);
  if (error != cudaSuccess || fill.bytes == 0 || fill.rows == 0)
    return error;
  if (cudart_plan_contains(fill.to))
    return cudaSuccess;
  if (fill.rows > 1 && fill.pitch < fill.bytes)
    return cudart_fail(cudaErrorInvalidPitchValue,
                       "cudaMemset2D: pitch is %zu: expected the width of %zu bytes or more",
                       fill.pitch, fill.bytes);
  if (!is_reachable(fill.to) || !is_whole(fill.to, fill.pitch, fill.bytes, fill.rows))
    return cudart_fail(cudaErrorInvalidValue, "cudaMemset: %zu bytes at %p are not device memory",
                       fill.bytes * fill.rows, (void *)fill.to);
  const struct cudart_work work = {.run = run_fill,
                                   .report = report_fill,
                                   .name = waits ? "cudaMemset" : "cudaMemsetAsync",
                                   .is_short = waits || fill.bytes * fill.rows <= SHORT_BYTES};
  openreg_status status = waits ? openreg_capture_refuse_unsafe("cudaMemset") : OPENREG_OK;
  if (status == OPENREG_OK)
    status = cudart_submit(stream, &work, &fill, sizeof fill);
  if (status == OPENREG_OK && waits)
    status = synchronize(stream);
  return cudart_return(status);
}

cudaError_t cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return start_fill((struct fill){devPtr, pitch, width, height, value}, stream, false);
}

cudaError_t cudaMemset2D(void *devPtr, size_t pitch, int value, size_t width, size_t height) {
  return start_fill((struct fill){devPtr, pitch, width, height, value}, NULL, true);
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream) {
  return cudaMemset2DAsync(devPtr, count, value, count, 1, stream);
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count) {
  return cudaMemset2D(devPtr, count, value, count, 1);
}
