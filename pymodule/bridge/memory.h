// Device memory as PyTorch sees it: DataPtrs over blocks of the caching allocator, and the
// redirection that makes CPU kernels allocate their results there.
//
// The same block appears in two forms. A *device pointer* shows the device address, has the block
// as its context and is freed by free_block. A *redirected pointer*, what a CPU kernel gets, shows
// the kernel address and has that address as its context too, because callers of raw_allocate
// insist on it; the block is found again by the address. Handing a result over to the device turns
// the second form into the first, and nothing else happens. The block's `user` field holds the twin
// storage (device_tensor.h), if there is one.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include "allocator.h"
#include "status.h"

namespace openreg {

// The deleters of the two forms.
void free_block(void *block);
void free_redirected(void *kernel_address);

inline bool owns_block(const c10::DataPtr &pointer) {
  return pointer.get_deleter() == &free_block;
}

inline openreg_block *block_of(const c10::DataPtr &pointer) {
  return static_cast<openreg_block *>(pointer.get_context());
}

// True for host memory that a kernel allocated on the device. An allocation of 0 bytes has no
// address and counts as host memory.
inline bool is_redirected(const c10::DataPtr &pointer) {
  return pointer.get_deleter() == &free_redirected && pointer.get() != nullptr;
}

inline openreg_block *block_at(const void *kernel_address) {
  return openreg_block_find(openreg_device_view(kernel_address));
}

// A block for the device's current stream. Raises torch.OutOfMemoryError in CUDA's words.
openreg_block *allocate_block(c10::DeviceIndex device, size_t bytes);

inline c10::DataPtr device_pointer(openreg_block *block) {
  return {block->address, block, &free_block,
          c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(block->device))};
}

// Where a device address is seen by kernels; null stays null.
inline void *kernel_address(const void *device_address) {
  return device_address == nullptr ? nullptr : openreg_kernel_view(device_address);
}

// Blocks of every size may be split: no limit, as CUDA shows it.
constexpr int64_t kMaxSplitSize = -1;

// The allocator that torch.accelerator's memory functions find.
c10::DeviceAllocator *device_allocator();

// While one lives, CPU memory that this thread allocates lies on `device`. Nests.
class Redirection {
public:
  explicit Redirection(c10::DeviceIndex device) : previous_(device_) { device_ = device; }
  ~Redirection() { device_ = previous_; }
  Redirection(const Redirection &) = delete;
  Redirection &operator=(const Redirection &) = delete;

  // The device that this thread's CPU allocations go to; -1: none.
  static c10::DeviceIndex device() { return device_; }

private:
  static constinit thread_local c10::DeviceIndex device_ __attribute__((tls_model("initial-exec")));
  c10::DeviceIndex previous_;
};

// The process's CPU allocator with the redirection in front; installed once, at import. Twin
// storages name it as their allocator, so that a kernel can grow them.
c10::Allocator *redirecting_allocator();
void install_redirecting_allocator();

} // namespace openreg
