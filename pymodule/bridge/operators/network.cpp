// Typed launches of other operators that training steps call: matrix products, reductions,
// indexing, normalization, losses, pooling and Fourier transforms.

#include <ATen/Context.h>
#include <ATen/Operators.h>

#include "core/registration.h"
#include "streams/sync_debug.h"
#include "launch/typed.h"
#include "profiler/host_wait.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

// The sizes of these results depend on the arguments' content, so the call waits for it.
at::Tensor nonzero(const at::Tensor &self) {
  note_sync(self.device().index());
  const HostWait wait(self.device().index());
  return typed<ops::nonzero>(self);
}

at::Tensor masked_select(const at::Tensor &self, const at::Tensor &mask) {
  const auto device = (self.device().type() == kDeviceType ? self : mask).device().index();
  note_sync(device);
  const HostWait wait(device);
  return typed<ops::masked_select>(self, mask);
}

bool is_mask(const at::Tensor &index) {
  return index.device().type() == kDeviceType &&
         (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

void note_masks(const c10::List<std::optional<at::Tensor>> &indices) {
  for (const std::optional<at::Tensor> index : indices) {
    if (index.has_value() && index->defined() && is_mask(*index)) {
      note_sync(index->device().index());
    }
  }
}

at::Tensor index(const at::Tensor &self, const c10::List<std::optional<at::Tensor>> &indices) {
  if (syncs_are_noted()) [[unlikely]] {
    note_masks(indices);
  }
  return typed<ops::index_Tensor>(self, indices);
}

at::Tensor adaptive_avg_pool2d_backward(const at::Tensor &gradient, const at::Tensor &self) {
  at::globalContext().alertNotDeterministic("adaptive_avg_pool2d_backward_cuda"); // as on CUDA
  return typed<ops::_adaptive_avg_pool2d_backward>(gradient, self);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  // matrix products
  register_typed<ops::mm, ops::mm_out, ops::addmm, ops::addmm_out, ops::bmm, ops::bmm_out,
                 ops::baddbmm, ops::dot, ops::mv, ops::addmv>(library);
  // reductions
  register_typed<ops::sum, ops::sum_dim_IntList, ops::sum_IntList_out, ops::mean, ops::mean_dim,
                 ops::prod, ops::amax, ops::amin, ops::argmax, ops::argmin, ops::any, ops::all,
                 ops::max, ops::max_dim, ops::min, ops::min_dim, ops::var_correction,
                 ops::std_correction, ops::linalg_vector_norm, ops::logsumexp, ops::cumsum,
                 ops::topk>(library);
  // joining, indexing; the gradient of an embedding is in embedding.cpp
  register_typed<ops::cat, ops::flip, ops::gather, ops::scatter_src, ops::scatter__src,
                 ops::scatter_add, ops::scatter_add_, ops::index_select, ops::index_add,
                 ops::index_add_, ops::embedding, ops::tril, ops::triu, ops::constant_pad_nd,
                 ops::slice_backward, ops::stack, ops::repeat>(library);
  register_one<ops::nonzero>(library, &nonzero);
  register_one<ops::masked_select>(library, &masked_select);
  register_one<ops::index_Tensor>(library, &index);
  // normalization; that of layers and batches is in half_norms.cpp
  register_typed<ops::native_group_norm, ops::native_group_norm_backward>(library);
  // losses; softmax is in cuda_forms.cpp
  register_typed<ops::nll_loss_forward, ops::nll_loss_backward, ops::mse_loss,
                 ops::mse_loss_backward, ops::binary_cross_entropy,
                 ops::binary_cross_entropy_backward, ops::binary_cross_entropy_with_logits>(
      library);
  // pooling
  register_typed<ops::max_pool2d_with_indices, ops::max_pool2d_with_indices_backward,
                 ops::avg_pool2d, ops::avg_pool2d_backward, ops::_adaptive_avg_pool2d,
                 ops::upsample_nearest2d, ops::upsample_nearest2d_backward>(library);
  register_one<ops::_adaptive_avg_pool2d_backward>(library, &adaptive_avg_pool2d_backward);
  // Fourier transforms
  register_typed<ops::_fft_c2c, ops::_fft_c2r, ops::_fft_r2c>(library);
}

} // namespace openreg
