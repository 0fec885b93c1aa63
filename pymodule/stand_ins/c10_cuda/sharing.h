// Memory that CUDACachingAllocator sends to other processes and receives from them.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <string>

namespace openreg {

// Returns a handle with which one process can import the block that starts at `address`.
c10::cuda::CUDACachingAllocator::ShareableHandle export_memory(void *address);

// Imports the memory of a handle for the current stream of its device. While the result of an
// earlier call for the same handle exists, returns that.
std::shared_ptr<void> import_memory(const std::string &handle);

} // namespace openreg
