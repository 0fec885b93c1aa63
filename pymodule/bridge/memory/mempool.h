// torch.openreg.MemPool: a pool of memory that Python owns.
#pragma once

#include <atomic>
#include <cstdint>

namespace openreg {

class MemPool {
public:
  MemPool(bool use_on_oom, bool no_split);

  // Gives its free memory back; blocks that are still held live on.
  ~MemPool();
  MemPool(const MemPool &) = delete;
  MemPool &operator=(const MemPool &) = delete;

  uint64_t id() const { return id_; }

  // This object, and every use that began and has not ended.
  int64_t use_count() const { return 1 + uses_; }

  // From begin to end the calling thread allocates in this pool on a device. Begin returns the pool
  // that it allocated in before, which end goes back to.
  uint64_t begin_use(int device);
  void end_use(int device, uint64_t previous);

private:
  uint64_t id_ = 0;
  std::atomic<int64_t> uses_ = 0;
};

} // namespace openreg
