// For tests: raw allocations of a library's kernel on a worker, where a tensor's memory is
// reserved.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "memory/allocation/memory.h"

namespace openreg {

// Reserves a tensor's memory for this thread's first raw allocation of the same size. Use and
// destroy it on the thread that made it.
class ReservedMemory {
public:
  explicit ReservedMemory(const at::Tensor &tensor)
      : reservations_{{{{AllocationIndex::Kind::kFirstOfItsSize},
                        {kernel_address(tensor.mutable_data_ptr()), tensor.storage().nbytes()}}}},
        current_reservations_(reservations_) {}

  uintptr_t allocate(size_t bytes) {
    return reinterpret_cast<uintptr_t>(override_allocator()->raw_allocate(bytes));
  }
  // Any thread may call this at any time.
  static void free(uintptr_t address) {
    override_allocator()->raw_deallocate(reinterpret_cast<void *>(address));
  }

  bool is_held() const { return reservations_[0].is_held; }

private:
  std::array<Reservations::Reservation, 1> reservations_;
  Reservations current_reservations_;
};

} // namespace openreg
