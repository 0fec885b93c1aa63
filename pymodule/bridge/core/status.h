// From the C layers' statuses to PyTorch's exceptions: the one place that knows which is which.
#pragma once

#include <c10/core/Device.h>

#include "core/device_type.h"
#include "device/device.h"

namespace openreg {

[[noreturn]] void raise(openreg_status status);

// Raises the exception that torch.cuda raises for the same mistake, unless `status` is OK.
inline void check(openreg_status status) {
  if (status != OPENREG_OK) [[unlikely]] {
    raise(status);
  }
}

// The index of a device that a program named by a number, which PyTorch's type need not hold.
// Raises for a device that does not exist.
c10::DeviceIndex device_index(int device);

} // namespace openreg
