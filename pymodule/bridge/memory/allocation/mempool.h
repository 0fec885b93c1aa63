// torch.openreg.MemPool: a pool of memory that Python owns; and pools by their numbers, which
// graphs use, as (0, number) where PyTorch asks.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/allocation/pluggable_allocator.h"

namespace openreg {

class MemPool {
public:
  // With memory from `allocator`, or for null from the device.
  MemPool(std::shared_ptr<PluggableAllocator> allocator, bool use_on_oom, bool no_split);

  // Gives its free memory back; blocks that are still held live on.
  ~MemPool();
  MemPool(const MemPool &) = delete;
  MemPool &operator=(const MemPool &) = delete;

  uint64_t id() const { return id_; }
  const std::shared_ptr<PluggableAllocator> &allocator() const { return allocator_; }

private:
  uint64_t id_ = 0;
  std::shared_ptr<PluggableAllocator> allocator_;
};

// A number for a pool that is made when it is first allocated in.
uint64_t make_graph_pool_handle();

// From begin to end the calling thread allocates in a pool on a device; the last that was begun
// counts. Begin also makes one more user of the pool, who is there until release.
void begin_allocate_to_pool(int device, uint64_t pool);
void end_allocate_to_pool(int device, uint64_t pool);
void release_pool(uint64_t pool);

} // namespace openreg
