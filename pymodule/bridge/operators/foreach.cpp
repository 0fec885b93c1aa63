// Checks of CUDA's fused kernels over lists of tensors. PyTorch's loop over the list, which
// computes here, does not make them.

#include "compat/native_functions.h"
#include "compat/native_kernels.h"
#include "core/registration.h"

namespace openreg {

namespace {

// For _foreach_add only: similar operators accept a scalar tensor on the host.
void check_addend(at::TensorList tensors, const at::Tensor &addend, const at::Scalar &alpha,
                  const char *sentence) {
  native::check_foreach_api_restrictions(tensors);
  const bool fused = native::can_use_fast_route({tensors}, alpha) &&
                     tensors[0].scalar_type() == addend.scalar_type();
  TORCH_CHECK(!fused || addend.dim() != 0 || tensors[0].device() == addend.device(), sentence,
              tensors[0].device(), " but is on ", addend.device());
}

std::vector<at::Tensor> foreach_add(at::TensorList tensors, const at::Tensor &addend,
                                    const at::Scalar &alpha) {
  check_addend(tensors, addend, alpha, "scalar tensor expected to be on ");
  return native::foreach_tensor_add_tensor_kernel_slow(tensors, addend, alpha);
}

void foreach_add_(at::TensorList tensors, const at::Tensor &addend, const at::Scalar &alpha) {
  check_addend(tensors, addend, alpha, "scalar tensor is expected to be on ");
  native::foreach_tensor_add_tensor_kernel_slow_(tensors, addend, alpha);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_foreach_add.Tensor", &foreach_add);
  library.impl("_foreach_add_.Tensor", &foreach_add_);
}

} // namespace openreg
