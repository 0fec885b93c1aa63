// Saves and restores which blocks of a memory pool are allocated. Compiled graphs need this to
// capture another graph after replays (torch._C._cuda_getCheckpointState and related functions).
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "allocator/allocator.h"

namespace openreg {

using PoolCheckpoint = std::unique_ptr<openreg_mempool_checkpoint, decltype(&std::free)>;

PoolCheckpoint take_pool_checkpoint(int device, uint64_t pool);

// Frees a storage's memory. The storage keeps its address. Raises RuntimeError if it does not own
// memory.
void release_memory(c10::StorageImpl &storage);

// Restores a pool. First it frees the memory of the `stale` storages, which no longer own it.
// Storages in `adopters` that show a restored block without owning it become its owners. The other
// restored blocks have no owner, and are freed by their address.
void restore_pool(const openreg_mempool_checkpoint &checkpoint,
                  const std::vector<c10::StorageImpl *> &stale,
                  const std::vector<c10::StorageImpl *> &adopters);

// Returns the addresses of a pool's allocated blocks.
std::vector<uintptr_t> allocated_addresses(int device, uint64_t pool);

} // namespace openreg
