// Typed launches of the other operators that training steps consist of: matrix products,
// reductions, indexing, normalisation, losses, pooling and Fourier transforms.

#include <ATen/Operators.h>
#include <torch/library.h>

#include "../typed.h"

namespace openreg {

namespace ops = at::_ops;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  // matrix products
  register_typed<ops::mm, ops::mm_out, ops::addmm, ops::addmm_out, ops::bmm, ops::bmm_out,
                 ops::baddbmm, ops::dot, ops::mv, ops::addmv>(library);
  // reductions
  register_typed<ops::sum, ops::sum_dim_IntList, ops::sum_IntList_out, ops::mean, ops::mean_dim,
                 ops::prod, ops::amax, ops::amin, ops::argmax, ops::argmin, ops::any, ops::all,
                 ops::max, ops::max_dim, ops::min, ops::min_dim, ops::var_correction,
                 ops::std_correction, ops::linalg_vector_norm, ops::cumsum, ops::topk>(library);
  // joining, indexing
  register_typed<ops::cat, ops::flip, ops::gather, ops::index_Tensor, ops::masked_select,
                 ops::scatter_src, ops::scatter__src, ops::scatter_add, ops::scatter_add_,
                 ops::index_select, ops::index_add, ops::index_add_, ops::embedding,
                 ops::embedding_dense_backward, ops::tril, ops::triu, ops::nonzero>(library);
  // normalisation
  register_typed<ops::native_layer_norm, ops::native_layer_norm_backward, ops::native_batch_norm,
                 ops::native_batch_norm_backward, ops::native_group_norm,
                 ops::native_group_norm_backward>(library);
  // softmax and losses
  register_typed<ops::_softmax, ops::_softmax_backward_data, ops::_log_softmax,
                 ops::_log_softmax_backward_data, ops::nll_loss_forward, ops::nll_loss_backward,
                 ops::mse_loss, ops::mse_loss_backward, ops::binary_cross_entropy,
                 ops::binary_cross_entropy_backward>(library);
  // pooling
  register_typed<ops::max_pool2d_with_indices, ops::max_pool2d_with_indices_backward,
                 ops::avg_pool2d, ops::avg_pool2d_backward, ops::_adaptive_avg_pool2d,
                 ops::_adaptive_avg_pool2d_backward, ops::upsample_nearest2d,
                 ops::upsample_nearest2d_backward>(library);
  // Fourier transforms
  register_typed<ops::_fft_c2c, ops::_fft_c2r, ops::_fft_r2c>(library);
}

} // namespace openreg
