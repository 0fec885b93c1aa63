// ATen/cuda/Sleep.h.

#include <ATen/cuda/Sleep.h>

#include "stand_ins/torch_cuda/host_functions.h"

namespace at::cuda {

void sleep(int64_t cycles) {
  openreg::host_functions().sleep(cycles);
}

void flush_icache() {} // AMD's instruction cache; CUDA's function does nothing either

} // namespace at::cuda
