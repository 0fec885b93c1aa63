// Views: tensors that look into another's storage. Nothing runs and nothing is copied.

#include <ATen/Operators.h>
#include <torch/library.h>

#include "../typed.h"

namespace openreg {

namespace ops = at::_ops;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_views<ops::_conj, ops::_neg_view, ops::_reshape_alias, ops::_unsafe_view, ops::alias,
                 ops::as_strided, ops::detach, ops::diagonal, ops::expand, ops::permute,
                 ops::select_int, ops::slice_Tensor, ops::squeeze, ops::squeeze_dim,
                 ops::squeeze_dims, ops::t, ops::transpose_int, ops::unfold, ops::unsqueeze,
                 ops::view, ops::view_as_complex, ops::view_as_real, ops::view_dtype>(library);
}

} // namespace openreg
