// What happens when a device has no memory left: the observers are called, then the error is raised
// in CUDA's words.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

namespace openreg {

// The device, the bytes that were asked for, the bytes that the process may have at most on the
// device, and those that nobody has; in the order, and of the meaning, that CUDA's observers get.
using OutOfMemoryObserver = std::function<void(int64_t, int64_t, int64_t, int64_t)>;

// Called each time from then on, one after the other, by the thread that ran out, without any lock;
// for good. What one raises is raised instead.
void attach_out_of_memory_observer(OutOfMemoryObserver observer);

// For the thread's last request that did not fit.
[[noreturn]] void raise_out_of_memory(c10::DeviceIndex device);

} // namespace openreg
