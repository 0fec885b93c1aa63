#pragma once

#include <c10/core/Allocator.h>

namespace openreg {

// Puts `allocator`, which lasts, where PyTorch's CPU kernels allocate, and returns the one that was
// there. To be called once, while the extension is loaded.
c10::Allocator *replace_cpu_allocator(c10::Allocator *allocator);

} // namespace openreg
