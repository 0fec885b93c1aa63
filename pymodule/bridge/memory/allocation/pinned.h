#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace openreg {

// Returns the allocator of pinned host memory, which works before and without any device.
at::HostAllocator *pinned_allocator();

// Installs it in PyTorch. Call once, when the extension is loaded.
void install_pinned_allocator();

} // namespace openreg
