// The memory of a device that NCCL takes for a communicator: an estimate, which only
// OPENREG_GPU_OVERHEAD=1 counts. docs/gpu-memory.md has its sources.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

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

private:
  c10::DeviceIndex device_;
  uint64_t bytes_; // 0: nothing is reserved
};

} // namespace openreg
