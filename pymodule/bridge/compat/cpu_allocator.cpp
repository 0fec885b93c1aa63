#include "compat/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <limits>

namespace openreg {

// PyTorch keeps the allocator of the highest priority, and says nothing when it keeps another.
c10::Allocator *replace_cpu_allocator(c10::Allocator *allocator) {
  auto *const before = c10::GetCPUAllocator();
  c10::SetCPUAllocator(allocator, std::numeric_limits<uint8_t>::max());
  TORCH_CHECK(
      c10::GetCPUAllocator() == allocator,
      "openreg: PyTorch's CPU allocator cannot be replaced, so kernels would not allocate on "
      "devices");
  return before;
}

} // namespace openreg
