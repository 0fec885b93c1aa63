// The functions of the extension module behind this library's functions.
#pragma once

#include "bridge/core/host_functions.h"

namespace openreg {

// Raises an error if the extension module is not loaded in CUDA mode.
const HostFunctions &host_functions();

// Returns the device that a caller means: the current one for a negative number.
c10::DeviceIndex device_or_current(c10::DeviceIndex device);

} // namespace openreg
