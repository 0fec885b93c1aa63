// PyTorch's tables of inner loops, one for each operator that has one: `stub` looks a function up
// by the device of what it is called with.
#pragma once

#include <ATen/native/DispatchStub.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/native/transformers/attention.h>

#include "core/device_type.h"

namespace at::native {

// Numbers the indices of a sparse tensor. PyTorch does not install the header that declares it.
using flatten_indices_fn = Tensor (*)(const Tensor &indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)

} // namespace at::native

namespace openreg {

// Makes `kernel` the devices' function of a stub. To be called where kernels are registered.
template <class Stub> void set_device_kernel(Stub &stub, typename Stub::FnPtr kernel) {
  if (in_cuda_mode()) {
    stub.set_cuda_dispatch_ptr(kernel);
  } else {
    stub.set_privateuse1_dispatch_ptr(kernel);
  }
}

} // namespace openreg
