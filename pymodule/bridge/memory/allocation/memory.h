// Device memory as PyTorch sees it: DataPtrs over blocks of the caching allocator, and the
// redirection that makes CPU kernels allocate their results there.
//
// The same block appears in two forms. A *device pointer* shows the device address, has the block
// as its context and is freed by free_block. A *redirected pointer*, what a CPU kernel gets, shows
// the kernel address and has that address as its context too, because callers of raw_allocate
// insist on it; the block is found again by the address. Handing a result over to the device turns
// the second form into the first, and nothing else happens. The block's `user` field says which
// form it is: kRedirected, or the twin storage (device_tensor.h) or null for a device pointer.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <span>
#include <utility>

#include "allocator/allocator.h"
#include "core/status.h"

namespace openreg {

inline char redirected_mark;
inline void *const kRedirected = &redirected_mark;

// The deleters of the two forms. A kernel's library may free raw memory on any thread, and at any
// time: what was reserved for a result (Reservations, below) is the tensor's, so free_redirected
// leaves every block alone that is not in the redirected form.
void free_block(void *block);
void free_redirected(void *kernel_address);
void free_rehearsed(void *address);

inline bool owns_block(const c10::DataPtr &pointer) {
  return pointer.get_deleter() == &free_block;
}

inline openreg_block *block_of(const c10::DataPtr &pointer) {
  return static_cast<openreg_block *>(pointer.get_context());
}

// True for host memory that a kernel allocated on the device, or would have. An allocation of 0
// bytes has no address and counts as host memory.
inline bool is_redirected(const c10::DataPtr &pointer) {
  const auto deleter = pointer.get_deleter();
  return (deleter == &free_redirected || deleter == &free_rehearsed) && pointer.get() != nullptr;
}

inline openreg_block *block_at(const void *kernel_address) {
  return openreg_block_find(openreg_device_view(kernel_address));
}

// A block for a stream, or the device's current one. Raises torch.OutOfMemoryError in CUDA's words.
openreg_block *allocate_block(c10::DeviceIndex device, int stream, size_t bytes);
openreg_block *allocate_block(c10::DeviceIndex device, size_t bytes);

inline c10::DataPtr device_pointer(openreg_block *block) {
  return {block->address, block, &free_block,
          c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(block->device))};
}

// Where a device address is seen by kernels; null stays null.
inline void *kernel_address(const void *device_address) {
  return device_address == nullptr ? nullptr : openreg_kernel_view(device_address);
}

// The allocator that torch.accelerator's memory functions find.
c10::DeviceAllocator *device_allocator();

// What a kernel allocated while it ran, in order. Allocations of 0 bytes are not counted.
struct Allocation {
  void *kernel_address;
  size_t bytes;
  bool is_freed = false; // again, while the kernel ran
};
struct Allocations {
  c10::SmallVector<Allocation, 8> list;
  bool has_raw = false; // some of it was freed as raw memory, not as a tensor's

  void note_free(const void *kernel_address);
};

// While one lives, CPU memory that this thread allocates lies on `device` (-1: on the host), but
// for allocations of up to `host_bytes`. Notes the allocations in `log`, if there is one. Nests.
class Redirection {
public:
  explicit Redirection(c10::DeviceIndex device, Allocations *log = nullptr, uint8_t host_bytes = 0)
      : Redirection(Target{device < 0 ? Where::kHost : Where::kDevice, device, host_bytes, log}) {}
  ~Redirection() { current_ = previous_; }
  Redirection(const Redirection &) = delete;
  Redirection &operator=(const Redirection &) = delete;

  // Allocations are noted as those of a device, and lie on the host: a device's free memory may
  // not be written to while work is captured that will not begin before later.
  static Redirection rehearse(Allocations *log, uint8_t host_bytes) {
    return Redirection(Target{Where::kRehearsed, -1, host_bytes, log});
  }

private:
  friend class RedirectingAllocator;
  friend class Reservations;
  friend void free_redirected(void *kernel_address);
  friend void free_rehearsed(void *address);
  enum class Where { kHost, kDevice, kReserved, kRehearsed };
  struct Target {
    Where where;
    c10::DeviceIndex device;
    uint8_t host_bytes;
    Allocations *log;
  };
  explicit Redirection(Target target) : previous_(std::exchange(current_, target)) {}
  static constinit thread_local Target current_ __attribute__((tls_model("initial-exec")));
  Target previous_;
};

// Which of a kernel's allocations something lies in.
struct WhichAllocation {
  enum class Kind {
    kNth,
    kFirstOfItsSize, // the only one of its size, whose number is not the same each time
    kUnknown,
  };
  Kind kind = Kind::kUnknown;
  size_t n = 0; // from 0
};

// While one lives, the n-th allocation of this thread's CPU memory gets the memory that is
// reserved for it, provided that its size is as expected; all others get host memory. What is
// reserved stays the owner's. For workers, which have no part in the device's allocator.
class Reservations {
public:
  struct Reservation {
    WhichAllocation allocation;
    Allocation memory;
    bool is_held = false; // whoever allocated it has not let go of it
  };
  explicit Reservations(std::span<Reservation> reservations)
      : reservations_(reservations),
        redirection_(Redirection::Target{Redirection::Where::kReserved, -1, 0, nullptr}),
        previous_(std::exchange(current_, this)) {}
  ~Reservations() { current_ = previous_; }
  Reservations(const Reservations &) = delete;
  Reservations &operator=(const Reservations &) = delete;

private:
  friend class RedirectingAllocator;
  static constinit thread_local Reservations *current_ __attribute__((tls_model("initial-exec")));

  std::span<Reservation> reservations_;
  size_t allocations_ = 0;
  Redirection redirection_;
  Reservations *previous_;
};

// The process's CPU allocator with the redirection in front. Twin storages name it as their
// allocator, so that a kernel can grow them.
c10::Allocator *redirecting_allocator();

// Makes PyTorch use it, and the devices' allocator. Called once, when the extension is loaded.
void install_allocators();

} // namespace openreg
