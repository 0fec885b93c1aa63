// Views: tensors that look into another's storage. Nothing runs and nothing is copied.

#include <ATen/Operators.h>
#include <ATen/ops/detach_native.h>
#include <torch/library.h>

#include "../typed.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

// A fake tensor has our keys and no memory: tracing detaches it below its own dispatch.
at::Tensor detach(const at::Tensor &self) {
  const auto &storage = self.unsafeGetTensorImpl()->unsafe_storage();
  return storage.device_type() == kDeviceType ? typed_view<ops::detach>(self)
                                              : at::native::detach(self);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_views<ops::_conj, ops::_neg_view, ops::_reshape_alias, ops::_unsafe_view, ops::alias,
                 ops::as_strided, ops::diagonal, ops::expand, ops::permute, ops::select_int,
                 ops::slice_Tensor, ops::squeeze, ops::squeeze_dim, ops::squeeze_dims, ops::t,
                 ops::transpose_int, ops::unfold, ops::unsqueeze, ops::view, ops::view_as_complex,
                 ops::view_as_real, ops::view_dtype>(library);
  library.impl("detach", &detach);
}

} // namespace openreg
