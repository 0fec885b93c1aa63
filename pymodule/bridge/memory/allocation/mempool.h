// torch.openreg.MemPool, a memory pool that Python owns; and the functions for pools that graphs
// use by number, which PyTorch writes as (0, number).
#pragma once

#include <cstdint>
#include <memory>

#include "memory/allocation/pluggable_allocator.h"

namespace openreg {

class MemPool {
public:
  // Takes memory from `allocator`, or from the device if that is null.
  MemPool(std::shared_ptr<PluggableAllocator> allocator, bool use_on_oom, bool no_split);

  // Releases the pool's free memory. Allocated blocks stay valid.
  ~MemPool();
  MemPool(const MemPool &) = delete;
  MemPool &operator=(const MemPool &) = delete;

  uint64_t id() const { return id_; }
  const std::shared_ptr<PluggableAllocator> &allocator() const { return allocator_; }

private:
  uint64_t id_ = 0;
  std::shared_ptr<PluggableAllocator> allocator_;
};

// Returns a number for a pool that is created when memory is first allocated in it.
uint64_t allocate_graph_pool_id();

// Between begin and end the calling thread allocates in this pool on a device; the pool that was
// begun last counts. begin also adds a user to the pool, which release removes.
void begin_allocate_to_pool(int device, uint64_t pool);
void end_allocate_to_pool(int device, uint64_t pool);
void release_pool(uint64_t pool);

} // namespace openreg
