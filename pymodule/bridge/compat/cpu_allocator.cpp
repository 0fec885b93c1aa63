#include "compat/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <limits>

namespace openreg {

// PyTorch keeps the allocator with the highest priority, silently, so the result must be checked.
c10::Allocator *replace_cpu_allocator(c10::Allocator *allocator) {
  auto *const before = c10::GetCPUAllocator();
  c10::SetCPUAllocator(allocator, std::numeric_limits<uint8_t>::max());
  TORCH_CHECK(
      c10::GetCPUAllocator() == allocator,
      "openreg: cannot replace PyTorch's CPU allocator, because another one has a higher priority; "
      "without it, kernels cannot allocate device memory");
  return before;
}

} // namespace openreg
