// PyTorch's DispatchStubs. A stub is a table of an operator's inner loops, one per device type.
#pragma once

#include <ATen/native/DispatchStub.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/native/transformers/attention.h>

#include "core/device_type.h"

namespace at::native {

// Flattens the indices of a sparse tensor. PyTorch does not install the header that declares it.
using flatten_indices_fn = Tensor (*)(const Tensor &indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)

} // namespace at::native

namespace openreg {

// Registers `kernel` as the devices' function of a stub. Call it where kernels are registered.
template <class Stub> void set_device_kernel(Stub &stub, typename Stub::FnPtr kernel) {
  if (in_cuda_mode()) {
    stub.set_cuda_dispatch_ptr(kernel);
  } else {
    stub.set_privateuse1_dispatch_ptr(kernel);
  }
}

} // namespace openreg
