// Converts a statistic of the allocator layer to that of PyTorch's allocators.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "allocator/allocator.h"

namespace openreg {

inline c10::CachingAllocator::Stat to_stat(const openreg_stat &from) {
  c10::CachingAllocator::Stat to;
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
  return to;
}

} // namespace openreg
