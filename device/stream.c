/* stream.c: the streams of devices, which are numbers.
 *
 * A device finishes work at once, on the thread that gives it, so that every stream is idle
 * whenever it can be looked at. What is real is which stream is current, which the caching
 * allocator and events go by, and the order in which pools hand streams out.
 */
#include "internal.h"

#include <stdatomic.h>

enum { POOL_NORMAL, POOL_HIGH, POOLS };

static _Atomic unsigned handed_out[OPENREG_MAX_DEVICES][POOLS];
static _Thread_local int current[OPENREG_MAX_DEVICES];

openreg_status openreg_require_stream(int stream) {
  if (stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: stream %d: expected 0 to %d", stream,
                        OPENREG_STREAMS_PER_DEVICE - 1);
  return OPENREG_OK;
}

static openreg_status require_usable(int device, int stream) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK)
    status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  return status;
}

openreg_status openreg_stream_from_pool(int device, int priority, int *stream) {
  openreg_status status = openreg_require_device(device);
  if (status != OPENREG_OK)
    return status;
  int pool = priority < 0 ? POOL_HIGH : POOL_NORMAL;
  unsigned turn = atomic_fetch_add_explicit(&handed_out[device][pool], 1, memory_order_relaxed);
  *stream = 1 + pool * OPENREG_STREAMS_PER_POOL + (int)(turn % OPENREG_STREAMS_PER_POOL);
  return OPENREG_OK;
}

openreg_status openreg_stream_current(int device, int *stream) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    *stream = current[device];
  return status;
}

openreg_status openreg_stream_set_current(int device, int stream) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    current[device] = stream;
  return status;
}

openreg_status openreg_stream_query(int device, int stream) {
  return require_usable(device, stream);
}

openreg_status openreg_stream_synchronize(int device, int stream) {
  return require_usable(device, stream);
}

openreg_status openreg_device_synchronize(int device) {
  return require_usable(device, OPENREG_STREAM_DEFAULT);
}
