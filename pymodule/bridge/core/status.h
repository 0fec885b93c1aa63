// Translates statuses of the C layers to PyTorch's exceptions. No other file does.
#pragma once

#include <c10/core/Device.h>

#include "core/device_type.h"
#include "device/device.h"

namespace openreg {

// Raises the exception for a status other than OK. Its message is openreg_last_error() of this
// thread.
[[noreturn]] void raise(openreg_status status);

// Raises the exception that torch.cuda raises for the same error, unless `status` is OK.
inline void check(openreg_status status) {
  if (status != OPENREG_OK) [[unlikely]] {
    raise(status);
  }
}

// Converts a device number from a program to PyTorch's index type, which is narrower than int.
// Raises torch.AcceleratorError for a device that does not exist.
c10::DeviceIndex device_index(int device);

} // namespace openreg
