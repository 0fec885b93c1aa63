// Views: tensors that share another tensor's storage. Nothing runs and nothing is copied.

#include <ATen/Operators.h>

#include "compat/native_kernels.h"
#include "core/registration.h"
#include "launch/typed.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

// A fake tensor has the device's keys but no device memory. Tracing detaches it below its own
// dispatch.
at::Tensor detach(const at::Tensor &self) {
  const auto &storage = self.unsafeGetTensorImpl()->unsafe_storage();
  return storage.device_type() == kDeviceType ? typed_view<&native::detach>(self)
                                              : native::detach(self);
}

// These kernels have several signatures.
constexpr ViewKernel<> kSqueeze = &native::squeeze;
constexpr ViewKernel<int64_t> kSqueezeDim = &native::squeeze;
constexpr ViewKernel<c10::IntArrayRef> kSqueezeDims = &native::squeeze;
constexpr ViewKernel<int64_t, int64_t, int64_t> kDiagonal = &native::diagonal;
constexpr ViewKernel<int64_t, int64_t> kTranspose = &native::transpose;

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  register_view<ops::_conj, &native::_conj>(library);
  register_view<ops::_neg_view, &native::_neg_view>(library);
  register_view<ops::_reshape_alias, &native::_reshape_alias>(library);
  register_view<ops::_unsafe_view, &native::_unsafe_view>(library);
  register_view<ops::alias, &native::alias>(library);
  register_view<ops::as_strided, &native::as_strided_tensorimpl>(library);
  register_view<ops::diagonal, kDiagonal>(library);
  register_view<ops::expand, &native::expand>(library);
  register_view<ops::permute, &native::permute>(library);
  register_view<ops::select_int, &native::select_symint>(library);
  register_view<ops::slice_Tensor, &native::slice>(library);
  register_view<ops::squeeze, kSqueeze>(library);
  register_view<ops::squeeze_dim, kSqueezeDim>(library);
  register_view<ops::squeeze_dims, kSqueezeDims>(library);
  register_view<ops::t, &native::t>(library);
  register_view<ops::transpose_int, kTranspose>(library);
  register_view<ops::unfold, &native::unfold>(library);
  register_view<ops::unsqueeze, &native::unsqueeze>(library);
  register_view<ops::view, &native::view>(library);
  register_view<ops::view_as_complex, &native::view_as_complex>(library);
  register_view<ops::view_as_real, &native::view_as_real>(library);
  register_view<ops::view_dtype, &native::view_dtype>(library);
  library.impl("detach", &detach);
}

} // namespace openreg
