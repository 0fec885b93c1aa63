// The check that indices of a sparse tensor are those of a coalesced one numbers them by a
// DispatchStub that it calls directly, on the device's own tensor. PyTorch does not install the
// header that declares it, so it is declared again here.

#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/tensor.h>
#include <c10/util/strides.h>

namespace openreg {

namespace {

// indices: (dimensions, n), integers. Returns n numbers: the positions that the columns name in a
// contiguous tensor of `sizes`.
at::Tensor flatten_indices(const at::Tensor &indices, c10::IntArrayRef sizes) {
  const auto strides = at::tensor(c10::contiguous_strides(sizes), at::kLong).unsqueeze(1);
  return indices.mul(strides.to(indices.device())).sum(0);
}

} // namespace

} // namespace openreg

namespace at::native {

using flatten_indices_fn = Tensor (*)(const Tensor &indices, IntArrayRef size);

DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)

REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &::openreg::flatten_indices)

} // namespace at::native
