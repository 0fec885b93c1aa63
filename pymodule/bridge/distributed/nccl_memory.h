// The memory of a device that NCCL takes for a communicator: an estimate, which only
// OPENREG_GPU_OVERHEAD=1 counts. docs/gpu-memory.md has its sources.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace openreg {

// The bytes that a communicator of so many ranks takes: OPENREG_NCCL_MEMORY, or figures that users
// measured. Raises DistBackendError if the variable is not a number.
uint64_t estimate_nccl_memory(int ranks);

// Reserves the memory while it lives.
class NcclMemory {
public:
  // Raises DistBackendError if the device has no room, or if OPENREG_NCCL_MEMORY is not a number.
  NcclMemory(c10::DeviceIndex device, int ranks);
  ~NcclMemory();
  NcclMemory(const NcclMemory &) = delete;
  NcclMemory &operator=(const NcclMemory &) = delete;

  // Release the memory, and reserve it again, which raises like the constructor. A second call
  // does nothing.
  void suspend();
  void resume();
  bool is_suspended() const { return is_suspended_; }
  uint64_t bytes() const { return bytes_; }

private:
  void reserve();

  c10::DeviceIndex device_;
  int ranks_;
  uint64_t bytes_; // 0: nothing is reserved
  std::mutex mutex_;
  std::atomic<bool> is_suspended_{false};
};

} // namespace openreg
