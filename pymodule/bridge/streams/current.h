// The stream that a device's work of the calling thread goes to.
#pragma once

#include "core/status.h"
#include "device/device.h"

namespace openreg {

// Raises: for a device that there is not.
inline int current_stream(int device) {
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  return stream;
}

} // namespace openreg
