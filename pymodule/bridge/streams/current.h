// The calling thread's current stream on a device.
#pragma once

#include "core/status.h"
#include "device/device.h"

namespace openreg {

// Returns the stream's number. Raises RuntimeError for an invalid device index.
inline int current_stream(int device) {
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  return stream;
}

} // namespace openreg
