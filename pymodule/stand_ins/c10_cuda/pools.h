// Memory pools for CUDACachingAllocator. A pool's id is {0, n}: n is the number of the C layer's
// pool, as in torch.cuda.MemPool.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <unordered_set>

namespace openreg {

// Returns the number of a pool. Raises an error for an id that openreg did not make.
uint64_t pool_number(c10::MempoolId_t id);

// Between these calls the calling thread allocates in the pool. Scopes nest. Begin adds a user to
// the pool, as in PyTorch, and end does not remove it.
void begin_pool(c10::DeviceIndex device, c10::MempoolId_t id);
void end_pool(c10::DeviceIndex device, c10::MempoolId_t id);

// Whether exactly these addresses are allocated in a pool.
bool pool_has_exactly(c10::DeviceIndex device, c10::MempoolId_t id,
                      const std::unordered_set<void *> &addresses);

std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState>
take_checkpoint(c10::DeviceIndex device, c10::MempoolId_t id);

// Restores a pool. Its blocks that are not in the checkpoint must have been freed. Returns what was
// allocated again.
c10::cuda::CUDACachingAllocator::CheckpointDelta
restore_checkpoint(c10::cuda::CUDACachingAllocator::AllocatorState &state);

} // namespace openreg
