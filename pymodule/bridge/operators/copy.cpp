// Copies between host and devices, and between devices: any dtypes and strides.
//
// Both ends are reachable through the kernel view, so that a copy is one pass over the bytes
// wherever they lie: PyTorch's CPU copy on the twins, or the device layer's when no element
// changes.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/resize.h>
#include <torch/library.h>

#include "../typed.h"

namespace openreg {

namespace {

// Below this size the device layer's copy has nothing to win.
constexpr size_t kPlainCopyBytes = 4096;

// Tensors that share a storage are the CPU's to judge: it refuses a partial overlap.
bool same_bytes(const at::Tensor &self, const at::Tensor &source) {
  return !self.is_alias_of(source) && self.scalar_type() == source.scalar_type() &&
         self.sizes() == source.sizes() && self.strides() == source.strides() &&
         self.is_non_overlapping_and_dense() && self.is_conj() == source.is_conj() &&
         self.is_neg() == source.is_neg() && !source.is_quantized() && !source._is_zerotensor();
}

void check_copyable(const at::Tensor &tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.device().type() == kDeviceType || tensor.is_cpu(),
                              "openreg: cannot copy between openreg and ", tensor.device());
}

at::Tensor &copy_(at::Tensor &self, const at::Tensor &source, bool non_blocking) {
  check_copyable(self);
  check_copyable(source);
  if (self.nbytes() >= kPlainCopyBytes && same_bytes(self, source)) {
    check(openreg_copy(self.mutable_data_ptr(), source.const_data_ptr(), self.nbytes()));
    return self;
  }
  check(openreg_initialize()); // refuses a forked child
  at::_ops::copy_::redispatch(kCpuKernel, twin_or_self(self), twin_or_self(source), non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor &self, const at::Tensor &destination, bool non_blocking) {
  auto to = destination;
  return copy_(to, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor &self, const at::Tensor &destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("copy_", &copy_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", typed<at::_ops::_local_scalar_dense>);
}

// A copy reads the lazy marks of both ends itself. Resolving them first would copy, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace openreg
