// Symmetric memory: memory that all ranks of a group allocate alike, and of which each reaches all
// of the others' (torch.distributed._symmetric_memory).
//
//     symmetric_signals    words that ranks change to wait for each other, on streams
//     symmetric_peers      allocations, and the meeting of ranks over them
//     symmetric_memory     both as PyTorch asks for them
//     symmetric_operators  reductions between the ranks' memory: torch.ops.symm_mem
//     symmetric_exchange   all-to-all operators whose sizes are known to devices alone
#pragma once

#include <memory>
#include <string>

#include "distributed/symmetric/peers.h"
#include "memory/allocation/pluggable_allocator.h"

namespace openreg {

// Lets PyTorch find the allocator.
void register_symmetric_memory();

// What a memory pool has its segments from, for tensors in it to be symmetric.
std::shared_ptr<PluggableAllocator> symmetric_memory_source();

// The place of a tensor in symmetric memory.
struct SymmetricPlace {
  SymmetricPeersPtr peers; // null: there is none
  size_t offset = 0;       // of its first element, in the buffer
};

// Meets the group if that has not been done. All ranks call it.
SymmetricPlace find_symmetric_place(const at::Tensor &tensor, const std::string &group);

} // namespace openreg
