// Handles a request that does not fit: calls the observers, then raises the error in CUDA's words.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

namespace openreg {

// The arguments are the device, the requested bytes, the limit of this process in bytes, and the
// free bytes of the device, as CUDA's observers get them.
using OutOfMemoryObserver = std::function<void(int64_t, int64_t, int64_t, int64_t)>;

// Adds an observer permanently. Observers are called one after the other, on the thread whose
// request failed, without a lock. If one raises an exception, that is raised instead.
void attach_out_of_memory_observer(OutOfMemoryObserver observer);

// Raises the error for the thread's last request that did not fit.
[[noreturn]] void raise_out_of_memory(c10::DeviceIndex device);

} // namespace openreg
