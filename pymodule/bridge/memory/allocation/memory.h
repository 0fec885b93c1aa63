// Device memory for PyTorch: DataPtrs over blocks of the caching allocator, and the allocator
// override that makes CPU kernels allocate their results there.
//
// The same block appears in two forms. A *device pointer* has the device address; free_memory frees
// it. Its context is the block, marked by the lowest bit. For memory that PyTorch or an extension
// takes from the registered allocator it is the device address, because callers of raw_allocate
// require that. An *override pointer*, which CPU kernels get, has the kernel address, and the same
// address as its context. The block can be found from either address. Adopting a result turns the
// second form into the first, and changes nothing else. The block's `user` field tells the form:
// kOverrideBlock, or for a device pointer the twin storage (device_tensor.h) or null.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "allocator/allocator.h"
#include "core/status.h"

namespace openreg {

inline char override_mark;
inline void *const kOverrideBlock = &override_mark;

// The deleters of the two forms, and of host memory that is recorded. A kernel's library may free
// raw memory on any thread at any time. Memory that was reserved for a result (Reservations, below)
// belongs to the tensor. So free_override_block ignores every block that is not in the override
// form.
void free_memory(void *context);
void free_override_block(void *kernel_address);
void free_recorded(void *address);

// An allocation of 0 bytes by the registered allocator has no block.
inline bool owns_block(const c10::DataPtr &pointer) {
  return pointer.get_deleter() == &free_memory && pointer.get_context() != nullptr;
}

// Raises CUDA's error if no allocated block begins at the address.
openreg_block *require_block(const void *device_address);

constexpr uintptr_t kBlockMark = 1;

inline openreg_block *block_of_context(void *context) {
  const auto bits = reinterpret_cast<uintptr_t>(context);
  return (bits & kBlockMark) != 0 ? reinterpret_cast<openreg_block *>(bits - kBlockMark)
                                  : require_block(context);
}

inline openreg_block *block_of(const c10::DataPtr &pointer) {
  return block_of_context(pointer.get_context());
}

// True for memory that a kernel allocated on the device. An allocation of 0 bytes has no address
// and counts as host memory.
inline bool is_from_override(const c10::DataPtr &pointer) {
  return pointer.get_deleter() == &free_override_block && pointer.get() != nullptr;
}

inline openreg_block *block_at(const void *kernel_address) {
  return openreg_block_find(openreg_device_view(kernel_address));
}

// Allocates a block for a stream, or for the device's current one. Raises torch.OutOfMemoryError in
// CUDA's words.
openreg_block *allocate_block(c10::DeviceIndex device, int stream, size_t bytes);
openreg_block *allocate_block(c10::DeviceIndex device, size_t bytes);

// A block with an owner.
void free_block(openreg_block *block);
using Block = std::unique_ptr<openreg_block, decltype(&free_block)>;

inline c10::DataPtr device_pointer(openreg_block *block) {
  auto *const context = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(block) | kBlockMark);
  return {block->address, context, &free_memory,
          c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(block->device))};
}

// Returns the address at which kernels see a device address; null stays null.
inline void *kernel_address(const void *device_address) {
  return device_address == nullptr ? nullptr : openreg_kernel_view(device_address);
}

// The allocator for torch.accelerator's memory functions.
c10::DeviceAllocator *device_allocator();

// What a kernel allocated while it ran, in order, without allocations of 0 bytes.
struct Allocation {
  void *kernel_address;
  size_t bytes;
  bool is_freed = false; // while the kernel ran
};
struct Allocations {
  c10::SmallVector<Allocation, 8> list;
  c10::SmallVector<int, 16> order; // i: the i-th allocation, from 1; -i: its end
  bool has_raw = false;            // some memory was freed as raw memory, not by a tensor

  void note(void *kernel_address, size_t bytes);
  void note_free(const void *kernel_address);
};

// Which of a kernel's allocations are the device's: its results, as far as the launch knows them
// (launch/kernel_memory.h). The others are host memory.
struct Placement {
  int64_t nth = 0;        // bit i: the i-th allocation
  size_t of_bytes = 0;    // if not 0, instead: the first allocation of this size
  uint8_t host_bytes = 0; // smaller allocations, and those of this size, are host memory; no i-th

  static constexpr int64_t kAll = -1;
  static constexpr size_t kMaxNth = 62;
  static Placement all() { return {.nth = kAll}; }
  static Placement first(size_t count) { return {.nth = (int64_t{1} << count) - 1}; }
};

// While it exists, this thread's CPU allocations are placed on `device` or the host (device -1:
// always). They are
// recorded in `log`, if there is one. Overrides nest.
class AllocatorOverride {
public:
  AllocatorOverride(c10::DeviceIndex device, Placement placement, Allocations *log = nullptr)
      : AllocatorOverride(
            Target{device < 0 ? Where::kHost : Where::kDevice, device, placement, log}) {}
  // Places everything on the host.
  explicit AllocatorOverride(Allocations *log = nullptr)
      : AllocatorOverride(Target{Where::kHost, -1, {}, log}) {}
  ~AllocatorOverride() { current_ = previous_; }
  AllocatorOverride(const AllocatorOverride &) = delete;
  AllocatorOverride &operator=(const AllocatorOverride &) = delete;

private:
  friend class OverrideAllocator;
  friend class ResizeAllocator;
  friend class Reservations;
  friend void free_override_block(void *kernel_address);
  friend void free_recorded(void *address);
  enum class Where { kHost, kDevice, kReserved };
  struct Target {
    Where where;
    c10::DeviceIndex device;
    Placement placement;
    Allocations *log;
  };
  explicit AllocatorOverride(Target target) : previous_(std::exchange(current_, target)) {}
  static constinit thread_local Target current_ __attribute__((tls_model("initial-exec")));
  Target previous_;
};

// How many allocations were placed on a device as results, but freed by their kernel. For tests.
int64_t misplaced_allocations();

// Blocks for the results of the launch that this thread runs. While they exist, a result that is
// moved to the device takes one of its size. The others are freed.
class PreparedBlocks {
public:
  explicit PreparedBlocks(std::vector<Block> blocks)
      : blocks_(std::move(blocks)), previous_(std::exchange(current_, this)) {}
  ~PreparedBlocks() { current_ = previous_; }
  PreparedBlocks(const PreparedBlocks &) = delete;
  PreparedBlocks &operator=(const PreparedBlocks &) = delete;

  // Returns a prepared block of `bytes`, or allocates one on the device.
  static openreg_block *take(c10::DeviceIndex device, size_t bytes);

private:
  static constinit thread_local PreparedBlocks *current_ __attribute__((tls_model("initial-exec")));
  std::vector<Block> blocks_;
  PreparedBlocks *previous_;
};

// Identifies one of a kernel's allocations.
struct AllocationIndex {
  enum class Kind {
    kNth,
    kFirstOfItsSize, // the only one of its size, whose index varies
    kUnknown,
  };
  Kind kind = Kind::kUnknown;
  size_t n = 0; // counted from 0
};

// While it exists, this thread's n-th CPU allocation gets the memory that was reserved for it, if
// the size is as expected. All other allocations get host memory. The owner keeps the reserved
// memory. For workers, which never use the device's allocator.
class Reservations {
public:
  struct Reservation {
    AllocationIndex allocation;
    Allocation memory;
    bool is_held = false; // allocated and not freed yet
  };
  explicit Reservations(std::span<Reservation> reservations)
      : reservations_(reservations),
        override_(AllocatorOverride::Target{AllocatorOverride::Where::kReserved, -1, {}, nullptr}),
        previous_(std::exchange(current_, this)) {}
  ~Reservations() { current_ = previous_; }
  Reservations(const Reservations &) = delete;
  Reservations &operator=(const Reservations &) = delete;

private:
  friend class OverrideAllocator;
  static constinit thread_local Reservations *current_ __attribute__((tls_model("initial-exec")));

  std::span<Reservation> reservations_;
  size_t allocations_ = 0;
  AllocatorOverride override_;
  Reservations *previous_;
};

// The process's CPU allocator behind the override.
c10::Allocator *override_allocator();

// The allocator of twin storages. Kernels use it to resize tensors, and that memory is the
// device's.
c10::Allocator *resize_allocator();

// Installs the override and the allocator of the devices in PyTorch. Call once, when the extension
// is loaded.
void install_allocators();

} // namespace openreg
