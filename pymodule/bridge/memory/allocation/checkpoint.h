// What is allocated in a memory pool, taken down and brought back: what compiled graphs need to
// capture another graph behind replays (torch._C._cuda_getCheckpointState and its like).
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

// Frees a storage's memory, whose address it goes on to show. Raises RuntimeError if it owns none.
void let_go(c10::StorageImpl &storage);

// Brings a pool back. Memory of `stale` storages is freed first, and they let go of it. Blocks that
// come back are owned by those of `adopters` that look at their memory without owning it; the rest
// are nobody's, to be freed by their address.
void restore_pool(const openreg_mempool_checkpoint &checkpoint,
                  const std::vector<c10::StorageImpl *> &stale,
                  const std::vector<c10::StorageImpl *> &adopters);

// The addresses of what is allocated in a pool.
std::vector<uintptr_t> live_addresses(int device, uint64_t pool);

} // namespace openreg
