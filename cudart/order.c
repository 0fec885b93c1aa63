/* order.c: the implicit order between the default stream and blocking streams.
 *
 * A blocking stream is one that was created without cudaStreamNonBlocking, or the stream of
 * cudaStreamPerThread. In CUDA, work on the default stream waits for earlier work on all blocking
 * streams of its device, and the other way round. Streams of openreg know no such order. This file
 * adds it before each submission, by waits for events.
 *
 * It holds for work that is submitted through this library. Other code of the process that submits
 * to the default stream (PyTorch's operators) does not wait for blocking streams.
 */
#include "cudart/internal.h"

#include <stdatomic.h>

/* A byte for each stream: 1 if it is blocking. The count spares programs without such streams the
 * search. */
static struct {
  atomic_int count;
  atomic_bool is_blocking[OPENREG_STREAMS_PER_DEVICE];
} devices[OPENREG_MAX_DEVICES];

void cudart_set_blocking(struct cudart_stream stream, bool is_blocking) {
  bool before = atomic_exchange(&devices[stream.device].is_blocking[stream.number], is_blocking);
  atomic_fetch_add(&devices[stream.device].count, (int)is_blocking - (int)before);
}

bool cudart_is_blocking(struct cudart_stream stream) {
  return atomic_load_explicit(&devices[stream.device].is_blocking[stream.number],
                              memory_order_relaxed);
}

static bool exist(int device) {
  return atomic_load_explicit(&devices[device].count, memory_order_relaxed) > 0;
}

static void report_order(int device, int waiting, int awaited) {
  openreg_operation_report(&(openreg_operation){
      .kind = OPENREG_OPERATION_ORDER, .device = device, .stream = waiting, .awaited = awaited});
}

/* Makes later work of one stream of a device wait for all earlier work of another. */
static openreg_status wait_for(int device, int waiting, int awaited) {
  report_order(device, waiting, awaited);
  if (openreg_stream_is_idle(device, awaited))
    return OPENREG_OK;
  openreg_event *event;
  openreg_status status = openreg_event_create(device, false, &event);
  if (status != OPENREG_OK)
    return status;
  status = openreg_event_record(event, awaited);
  if (status == OPENREG_OK)
    status = openreg_stream_wait_event(device, waiting, event);
  openreg_event_destroy(event);
  return status;
}

static openreg_status wait_for_blocking(int device) {
  openreg_status status = OPENREG_OK;
  for (int i = 1; status == OPENREG_OK && i < OPENREG_STREAMS_PER_DEVICE; i++) {
    if (!cudart_is_blocking((struct cudart_stream){device, i}))
      continue;
    if (openreg_stream_is_capturing(device, i))
      return openreg_fail(OPENREG_CAPTURE_IMPLICIT,
                          "openreg: the default stream of device %d would wait for stream %d, "
                          "which captures",
                          device, i);
    status = wait_for(device, OPENREG_STREAM_DEFAULT, i);
  }
  return status;
}

openreg_status cudart_order(struct cudart_stream stream) {
  if (!exist(stream.device))
    return OPENREG_OK;
  if (stream.number == OPENREG_STREAM_DEFAULT)
    return wait_for_blocking(stream.device);
  bool waits =
      cudart_is_blocking(stream) && !openreg_stream_is_capturing(stream.device, stream.number);
  return waits ? wait_for(stream.device, stream.number, OPENREG_STREAM_DEFAULT) : OPENREG_OK;
}

void cudart_report_order(struct cudart_stream stream) {
  if (!exist(stream.device))
    return;
  if (stream.number != OPENREG_STREAM_DEFAULT) {
    if (cudart_is_blocking(stream))
      report_order(stream.device, stream.number, OPENREG_STREAM_DEFAULT);
    return;
  }
  for (int i = 1; i < OPENREG_STREAMS_PER_DEVICE; i++)
    if (cudart_is_blocking((struct cudart_stream){stream.device, i}))
      report_order(stream.device, OPENREG_STREAM_DEFAULT, i);
}

bool cudart_order_is_idle(struct cudart_stream stream) {
  if (!openreg_stream_is_idle(stream.device, stream.number))
    return false;
  if (!exist(stream.device))
    return true;
  if (stream.number != OPENREG_STREAM_DEFAULT)
    return !cudart_is_blocking(stream) ||
           openreg_stream_is_idle(stream.device, OPENREG_STREAM_DEFAULT);
  for (int i = 1; i < OPENREG_STREAMS_PER_DEVICE; i++)
    if (cudart_is_blocking((struct cudart_stream){stream.device, i}) &&
        !openreg_stream_is_idle(stream.device, i))
      return false;
  return true;
}
