// Raw memory as a library's kernel has it on a worker, where a tensor's memory is reserved for it:
// for tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "memory/allocation/memory.h"

namespace openreg {

// Reserves a tensor's memory for the first of this thread's raw allocations that has its size. To
// be used, and destroyed, by the thread that made it.
class ReservedMemory {
public:
  explicit ReservedMemory(const at::Tensor &tensor)
      : reservations_{{{{WhichAllocation::Kind::kFirstOfItsSize},
                        {kernel_address(tensor.mutable_data_ptr()), tensor.storage().nbytes()}}}},
        current_reservations_(reservations_) {}

  uintptr_t allocate(size_t bytes) {
    return reinterpret_cast<uintptr_t>(redirecting_allocator()->raw_allocate(bytes));
  }
  // By any thread, at any time.
  static void free(uintptr_t address) {
    redirecting_allocator()->raw_deallocate(reinterpret_cast<void *>(address));
  }

  bool is_held() const { return reservations_[0].is_held; }

private:
  std::array<Reservations::Reservation, 1> reservations_;
  Reservations current_reservations_;
};

} // namespace openreg
