#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace openreg {

// The allocator of pinned host memory. Usable before and without any device.
at::HostAllocator *pinned_allocator();

// Makes it the one that PyTorch asks. Called once, when the extension is loaded.
void install_pinned_allocator();

} // namespace openreg
