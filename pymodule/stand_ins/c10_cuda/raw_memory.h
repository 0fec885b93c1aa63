// Blocks of the allocator layer as raw addresses and as DataPtrs of the registered allocator.
#pragma once

#include <c10/core/Allocator.h>

#include "allocator/allocator.h"

namespace openreg {

// Allocates for the current stream of the current device; nullptr for 0 bytes. The address is of
// the device view. Raises torch.OutOfMemoryError in CUDA's words.
void *allocate_raw(size_t bytes);

// Returns the allocated block that starts at an address; raises CUDA's error if there is none.
openreg_block *require_block(const void *address);

// Frees memory of allocate_raw, torch.cuda.caching_allocator_alloc or a DataPtr that gave up its
// context.
void free_raw(void *address);

// Returns the DataPtr that the registered allocator would have returned for the block.
c10::DataPtr pointer_to(openreg_block *block);

} // namespace openreg
