// Symmetric memory: memory that all ranks of a group allocate alike, and that every rank can access
// on all ranks (torch.distributed._symmetric_memory).
//
//     signals.h       words that ranks change to wait for each other, on streams
//     peers.h         allocations, and the rendezvous of ranks that exchanges them
//     memory.h        the allocator and handles that PyTorch asks for
//     operators.cpp   reductions between the ranks' memory: torch.ops.symm_mem
//     all_to_all.cpp  all-to-all operators whose sizes are in device memory
#pragma once

#include <memory>
#include <string>

#include "distributed/symmetric/peers.h"
#include "memory/allocation/pluggable_allocator.h"

namespace openreg {

// Registers the allocator with PyTorch.
void register_symmetric_memory();

// The allocator of a memory pool whose tensors are to be symmetric.
std::shared_ptr<PluggableAllocator> symmetric_memory_source();

// Where a tensor is in symmetric memory.
struct SymmetricLocation {
  SymmetricPeersPtr peers; // null: the tensor is not in symmetric memory
  size_t offset = 0;       // of its first element in the buffer, in bytes
};

// Finds a tensor. Does the rendezvous of the group if that has not been done; all ranks must call
// this.
SymmetricLocation find_symmetric_location(const at::Tensor &tensor, const std::string &group);

} // namespace openreg
