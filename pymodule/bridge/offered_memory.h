// Raw memory as a library's kernel has it on a worker, where a tensor's memory is offered to it:
// for tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "memory.h"

namespace openreg {

// Offers a tensor's memory to the first of this thread's raw allocations that has its size. To be
// used, and destroyed, by the thread that made it.
class OfferedMemory {
public:
  explicit OfferedMemory(const at::Tensor &tensor)
      : offers_{{{Offering::kFirstOfItsSize,
                  {kernel_address(tensor.mutable_data_ptr()), tensor.storage().nbytes()}}}},
        offering_(offers_) {}

  uintptr_t allocate(size_t bytes) {
    return reinterpret_cast<uintptr_t>(redirecting_allocator()->raw_allocate(bytes));
  }
  // By any thread, at any time.
  static void free(uintptr_t address) {
    redirecting_allocator()->raw_deallocate(reinterpret_cast<void *>(address));
  }

  bool is_held() const { return offers_[0].is_held; }

private:
  std::array<Offering::Offer, 1> offers_;
  Offering offering_;
};

} // namespace openreg
