// Gradients of embeddings and of bags in float16 and bfloat16. As on CUDA, the gradients of one row
// are added up in float32 and rounded once. The CPU's kernels round after each addition, so a row
// with many gradients would stop growing. The float32 copies are host memory.

#include <ATen/Context.h>
#include <ATen/Operators.h>
#include <ATen/ops/_embedding_bag_backward.h>
#include <ATen/ops/embedding_dense_backward.h>

#include <optional>
#include <utility>

#include "core/dtypes.h"
#include "compat/operator_names.h"
#include "core/registration.h"
#include "launch/host_operator.h"
#include "launch/typed.h"
#include "operators/composed.h"

namespace openreg {

namespace {

namespace ops = at::_ops;

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// ---- rows ---------------------------------------------------------------------------------------

Tensor rows_on_host(const Tensor &gradient, const Tensor &indices, int64_t count,
                    int64_t padding_idx, bool scale_grad_by_freq) {
  const HostKernel kernel;
  return at::embedding_dense_backward(gradient.to(at::kFloat), indices, count, padding_idx,
                                      scale_grad_by_freq)
      .to(gradient.scalar_type());
}

Tensor embedding_dense_backward(const Tensor &gradient, const Tensor &indices, c10::SymInt count,
                                c10::SymInt padding_idx, bool scale_grad_by_freq) {
  if (!is_half(gradient.scalar_type())) [[likely]] {
    return typed<ops::embedding_dense_backward>(gradient, indices, std::move(count),
                                                std::move(padding_idx), scale_grad_by_freq);
  }
  return launch_host<&rows_on_host>("openreg_host::embedding_dense_backward", gradient, indices,
                                    count.guard_int(__FILE__, __LINE__),
                                    padding_idx.guard_int(__FILE__, __LINE__), scale_grad_by_freq);
}

// ---- bags ---------------------------------------------------------------------------------------

// CUDA adds up the gradients of maxima in their own dtype.
Tensor bags_on_host(const Tensor &gradient, const Tensor &indices, const Tensor &offsets,
                    const Tensor &bags, const Tensor &sizes, const Tensor &largest, int64_t count,
                    bool scale_grad_by_freq, int64_t mode, bool sparse,
                    const OptionalTensor &weights, int64_t padding_idx) {
  const HostKernel kernel;
  const auto backward = [&](const Tensor &of_bags, const OptionalTensor &of_samples) {
    return at::_embedding_bag_backward(of_bags, indices, offsets, bags, sizes, largest, count,
                                       scale_grad_by_freq, mode, sparse, of_samples, padding_idx);
  };
  if (!is_half(gradient.scalar_type()) || sparse || mode == kBagMaximum) {
    return backward(gradient, weights);
  }
  const auto wide = is_given(weights) ? OptionalTensor(weights->to(at::kFloat)) : std::nullopt;
  return backward(gradient.to(at::kFloat), wide).to(gradient.scalar_type());
}

Tensor embedding_bag_backward(const Tensor &gradient, const Tensor &indices, const Tensor &offsets,
                              const Tensor &bags, const Tensor &sizes, const Tensor &largest,
                              c10::SymInt count, bool scale_grad_by_freq, int64_t mode, bool sparse,
                              const OptionalTensor &weights, int64_t padding_idx) {
  if (mode == kBagMaximum) {
    at::globalContext().alertNotDeterministic("embedding_bag_backward_cuda_max");
  }
  return launch_host<&bags_on_host>(
      "openreg_host::_embedding_bag_backward", gradient, indices, offsets, bags, sizes, largest,
      count.guard_int(__FILE__, __LINE__), scale_grad_by_freq, mode, sparse, weights, padding_idx);
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("embedding_dense_backward(Tensor grad_output, Tensor indices, int num_weights, "
              "int padding_idx, bool scale_grad_by_freq) -> Tensor");
  library.def("_embedding_bag_backward(Tensor grad, Tensor indices, Tensor offsets, "
              "Tensor offset2bag, Tensor bag_size, Tensor maximum_indices, int num_weights, "
              "bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, "
              "int padding_idx=-1) -> Tensor");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("embedding_dense_backward", &rows_on_host);
  library.impl("_embedding_bag_backward", &bags_on_host);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  register_one<ops::embedding_dense_backward>(library, &embedding_dense_backward);
  library.impl("_embedding_bag_backward", &embedding_bag_backward);
}

} // namespace openreg
