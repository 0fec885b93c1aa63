// ATen/cuda/CUDAGeneratorImpl.h: the generators of the extension module.
//
// A program gets them as CUDAGeneratorImpl. The virtual functions that it calls belong to the
// extension module. This file has the functions of the class that are not virtual, and they use no
// field of it. No object of the class exists: its constructors are refused.

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/version.h>

#include "stand_ins/torch_cuda/host_functions.h"

namespace at {

namespace {

// PhiloxCudaState's addresses are not const, but nothing writes to them.
int64_t *address_of(const uint64_t *word) {
  return reinterpret_cast<int64_t *>(const_cast<uint64_t *>(word));
}

} // namespace

DeviceType CUDAGeneratorImpl::device_type() {
  return DeviceType::CUDA;
}

void CUDAGeneratorImpl::set_philox_offset_per_thread(uint64_t offset) {
  static_cast<c10::GeneratorImpl *>(this)->set_offset(offset);
}

uint64_t CUDAGeneratorImpl::philox_offset_per_thread() const {
  return static_cast<const c10::GeneratorImpl *>(this)->get_offset();
}

// In a capture the addresses are in host memory: only code for the host can run here.
PhiloxCudaState CUDAGeneratorImpl::philox_cuda_state(uint64_t increment) {
  const auto begin = openreg::host_functions().reserve_philox(*this, increment);
  return begin.seed == nullptr
             ? PhiloxCudaState(begin.seed_value, begin.offset_value)
             : PhiloxCudaState(address_of(begin.seed), address_of(begin.offset), begin.words);
}

std::pair<uint64_t, uint64_t> CUDAGeneratorImpl::philox_engine_inputs(uint64_t increment) {
  const auto begin = openreg::host_functions().reserve_philox(*this, increment);
  TORCH_CHECK(begin.seed == nullptr,
              "Refactor this op to use CUDAGeneratorImpl::philox_cuda_state. "
              "Cannot call CUDAGeneratorImpl::philox_engine_inputs during "
              "CUDA graph capture.");
  return {begin.seed_value, begin.offset_value};
}

namespace cuda::detail {

const Generator &getDefaultCUDAGenerator(DeviceIndex device) {
  return at::detail::getCUDAHooks().getDefaultGenerator(openreg::device_or_current(device));
}

Generator createCUDAGenerator(DeviceIndex device) {
  return at::detail::getCUDAHooks().getNewGenerator(openreg::device_or_current(device));
}

} // namespace cuda::detail
} // namespace at
