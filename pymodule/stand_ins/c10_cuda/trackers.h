// Functions that are called for every event of the allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace openreg {

// Adds a tracker permanently. It is called with the device's lock held, so it must not use the
// allocator.
void add_tracker(c10::CachingDeviceAllocator::AllocatorTraceTracker tracker);

} // namespace openreg
