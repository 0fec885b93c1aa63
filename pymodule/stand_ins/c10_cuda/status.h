// Statuses of the C layers as PyTorch's exceptions, of the types that torch.cuda raises. The bridge
// has the same for its own use (core/status.h); it needs libtorch_cpu, which this library does not.
#pragma once

#include <c10/core/Device.h>

#include "allocator/allocator.h"

namespace openreg {

// Raises the exception for a status other than OK, with the layer's message.
[[noreturn]] void raise(openreg_status status);

inline void check(openreg_status status) {
  if (status != OPENREG_OK) {
    raise(status);
  }
}

// Returns the device. Raises CUDA's error if this process does not see it.
c10::DeviceIndex check_device(int device);

// Raises an error for a function that C++ programs cannot use. `reason` is the end of the sentence.
[[noreturn]] void refuse(const char *function, const char *reason);

} // namespace openreg
