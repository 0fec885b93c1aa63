// RMS normalization as CUDA computes it: by one kernel, which saves the reciprocal root of each
// row's mean square. On the CPU PyTorch composes it of operators that save more. Half precision is
// computed in float32 and rounded once.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <array>
#include <limits>
#include <tuple>

#include "core/registration.h"
#include "launch/host_operator.h"
#include "operators/composed.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Dimensions = c10::SmallVector<int64_t, 6>;

Tensor wide(const Tensor &tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

// Returns the last `count` dimensions, or all others.
Dimensions dimensions_of(const Tensor &tensor, size_t count, bool last) {
  const auto first_last = tensor.dim() - static_cast<int64_t>(count);
  Dimensions dimensions;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if ((i >= first_last) == last) {
      dimensions.push_back(i);
    }
  }
  return dimensions;
}

double epsilon_of(const Tensor &wide_input, std::optional<double> epsilon) {
  return epsilon.value_or(wide_input.scalar_type() == at::kDouble
                              ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon());
}

Two rms_norm_on_host(const Tensor &input, at::IntArrayRef shape, const OptionalTensor &weight,
                     std::optional<double> epsilon) {
  const HostKernel kernel;
  const auto x = wide(input.contiguous());
  const auto rstd = (x * x)
                        .mean(dimensions_of(x, shape.size(), true), /*keepdim=*/true)
                        .add_(epsilon_of(x, epsilon))
                        .rsqrt_();
  auto result = x * rstd;
  if (is_given(weight)) {
    result.mul_(wide(*weight));
  }
  return {result.to(input.scalar_type()), rstd};
}

Two rms_norm_backward_on_host(const Tensor &gradient, const Tensor &input, at::IntArrayRef shape,
                              const Tensor &rstd, const OptionalTensor &weight,
                              std::array<bool, 2> wanted) {
  const HostKernel kernel;
  const auto normed = wide(input.contiguous()) * rstd;
  const auto wide_gradient = wide(gradient.contiguous());
  Tensor of_input, of_weight;
  if (wanted[0]) {
    const auto weighted = is_given(weight) ? wide_gradient * wide(*weight) : wide_gradient;
    const auto mean = (weighted * normed).mean(dimensions_of(normed, shape.size(), true), true);
    of_input = (weighted - normed * mean).mul_(rstd).to(input.scalar_type());
  }
  if (wanted[1] && is_given(weight)) {
    const auto rows = dimensions_of(normed, shape.size(), false);
    const auto products = wide_gradient * normed;
    of_weight = (rows.empty() ? products : products.sum(rows)).to(weight->scalar_type());
  }
  return {of_input, of_weight};
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) "
              "-> (Tensor, Tensor)");
  library.def("_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, "
              "Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("_fused_rms_norm", &rms_norm_on_host);
  library.impl("_fused_rms_norm_backward", &rms_norm_backward_on_host);
}

// ---- the devices' kernels -----------------------------------------------------------------------

void check_arguments(const Tensor &input, at::IntArrayRef shape, const OptionalTensor &weight) {
  const auto dtype = input.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(dtype) && !c10::isFloat8Type(dtype),
                              "\"LayerNormKernelImpl\" not implemented for '", dtype, "'");
  TORCH_CHECK(!is_given(weight) || weight->scalar_type() == dtype || dtype == at::kFloat,
              "expected scalar type ", dtype, " but found ",
              is_given(weight) ? weight->scalar_type() : dtype);
  const auto count = static_cast<int64_t>(shape.size());
  TORCH_CHECK(count >= 1,
              "Expected normalized_shape to be at least 1-dimensional, i.e., "
              "containing at least one element, but got normalized_shape = ",
              shape);
  TORCH_CHECK(input.dim() >= count && input.sizes().slice(input.dim() - count) == shape,
              "Given normalized_shape=", shape, ", expected input with shape [*", shape,
              "], but got input of size", input.sizes());
  TORCH_CHECK(!is_given(weight) || weight->sizes() == shape,
              "Expected weight to be of same shape as normalized_shape, but got weight of shape ",
              is_given(weight) ? weight->sizes() : shape, " and normalized_shape = ", shape);
}

Two rms_norm(const Tensor &input, at::IntArrayRef shape, const OptionalTensor &weight,
             std::optional<double> epsilon) {
  check_arguments(input, shape, weight);
  return launch_host<&rms_norm_on_host>("openreg_host::_fused_rms_norm", input, shape, weight,
                                        epsilon);
}

Two rms_norm_backward(const Tensor &gradient, const Tensor &input, at::IntArrayRef shape,
                      const Tensor &rstd, const OptionalTensor &weight,
                      std::array<bool, 2> wanted) {
  return launch_host<&rms_norm_backward_on_host>("openreg_host::_fused_rms_norm_backward", gradient,
                                                 input, shape, rstd, weight, wanted);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_fused_rms_norm", &rms_norm);
  library.impl("_fused_rms_norm_backward", &rms_norm_backward);
}

} // namespace openreg
