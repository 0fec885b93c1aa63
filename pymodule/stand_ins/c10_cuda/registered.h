// The device guard and the allocator that the extension module registered in PyTorch for CUDA.
//
// This library does not link the extension module. It takes memory and waits through PyTorch's
// registries instead, so that observers, Ctrl-C, the GIL and the texts of errors are as in
// torch.cuda. What only reads or sets state, such as the current device, goes to the C layers.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "bridge/core/host_functions.h"

namespace openreg {

// All three raise an error if the extension module is not loaded in CUDA mode.
const c10::impl::DeviceGuardImplInterface &registered_guard();
c10::DeviceAllocator &registered_allocator();

// The registered allocator's second interface.
AllocatorHistory &registered_history();

// Returns the device that a caller means: the current one for -1. Raises CUDA's error for a device
// that does not exist.
c10::DeviceIndex resolve_device(c10::DeviceIndex device);

} // namespace openreg
