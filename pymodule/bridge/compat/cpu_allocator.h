// Replaces PyTorch's CPU allocator.
#pragma once

#include <c10/core/Allocator.h>

namespace openreg {

// Makes PyTorch's CPU kernels allocate from `allocator`, which must live as long as the process.
// Returns the previous allocator. Call it once, when the extension is loaded. Raises RuntimeError
// if PyTorch keeps another allocator.
c10::Allocator *replace_cpu_allocator(c10::Allocator *allocator);

} // namespace openreg
