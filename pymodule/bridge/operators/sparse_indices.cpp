// The check that a sparse tensor is coalesced flattens its indices. It calls a function of the
// device directly, on a device tensor, through a DispatchStub.

#include "operators/sparse_indices.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/strides.h>

#include "compat/dispatch_stub.h"

namespace openreg {

namespace {

// `indices`: (dimensions, n), integers. Returns (n): the positions of the indexed elements in a
// contiguous tensor of `sizes`.
at::Tensor flatten_indices(const at::Tensor &indices, c10::IntArrayRef sizes) {
  const auto strides = at::tensor(c10::contiguous_strides(sizes), at::kLong).unsqueeze(1);
  return indices.mul(strides.to(indices.device())).sum(0);
}

} // namespace

void register_sparse_indices() {
  set_device_kernel(at::native::flatten_indices_stub, &flatten_indices);
}

} // namespace openreg
