// Host memory of PyTorch in a dry run. Each block has flags, which tell whether its values are
// known (tensor/known_values.h). Blocks are zero at first, because unknown values read as zero.
// Large ones take no memory of the machine until something is written: a dry run skips kernels of
// large tensors on the host as well (launch/dry_host.h).
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

namespace openreg {

// From now on the host's allocator gives blocks. Those of at least `large_bytes` are large.
void start_host_blocks(size_t large_bytes);
bool host_blocks_exist();

// Requires host_blocks_exist() and bytes > 0. Raises PyTorch's error if there is no memory. Any
// thread may free the block.
c10::DataPtr allocate_host_block(size_t bytes);

// Frees a block that was allocated as raw memory. Returns false if it is other memory.
bool free_raw_host_block(void *address);

// Returns the flags of a block, which are 0 at first; null if it is other memory.
uint32_t *host_block_flags(const c10::DataPtr &pointer);

} // namespace openreg
