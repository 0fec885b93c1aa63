/* handle.c: stream handles, the numbers that stand for a cudaStream_t. */
#include "device/process/state.h"

enum { NUMBER_BITS = 12 };
static const uintptr_t number_mask = ((uintptr_t)1 << NUMBER_BITS) - 1;

_Static_assert(OPENREG_STREAMS_PER_DEVICE <= 1 << NUMBER_BITS, "a handle has room for the number");

uintptr_t openreg_stream_make_handle(int device, int stream) {
  if (stream == OPENREG_STREAM_DEFAULT)
    return OPENREG_HANDLE_DEFAULT;
  return ((uintptr_t)device + 1) << NUMBER_BITS | (uintptr_t)stream;
}

openreg_status openreg_stream_parse_handle(uintptr_t handle, int *device, int *stream) {
  if (handle == OPENREG_HANDLE_DEFAULT || handle == OPENREG_HANDLE_LEGACY) {
    *device = openreg_device_current();
    *stream = OPENREG_STREAM_DEFAULT;
    return OPENREG_OK;
  }
  uintptr_t number = handle & number_mask, index = handle >> NUMBER_BITS;
  int count;
  openreg_status status = openreg_device_count(&count);
  if (status != OPENREG_OK)
    return status;
  if (index < 1 || index > (uintptr_t)count || number < 1 || number >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: 0x%lx is not the handle of a stream of this process",
                        (unsigned long)handle);
  *device = (int)index - 1;
  *stream = (int)number;
  return OPENREG_OK;
}
