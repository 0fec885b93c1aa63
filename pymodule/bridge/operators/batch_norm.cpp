// The operators of SyncBatchNorm, which several devices compute together. PyTorch has kernels for
// them on CUDA only. Statistics of float16 and bfloat16 are float32, and results are rounded once.

#include <ATen/Operators.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>
#include <c10/util/SmallVector.h>

#include <tuple>
#include <utility>

#include "core/registration.h"
#include "operators/composed.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

at::ScalarType statistics_dtype(const Tensor &input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor wide(const Tensor &input) {
  return input.to(statistics_dtype(input));
}

// Returns all dimensions except that of the channels.
c10::SmallVector<int64_t, 4> reduced(const Tensor &input) {
  TORCH_CHECK(input.dim() >= 2, "expected an input of at least 2 dimensions, got ", input.dim());
  c10::SmallVector<int64_t, 4> dimensions;
  for (int64_t i = 0; i < input.dim(); ++i) {
    if (i != 1) {
      dimensions.push_back(i);
    }
  }
  return dimensions;
}

// Reshapes one number per channel to broadcast with the input.
Tensor along(const Tensor &channels, const Tensor &input) {
  c10::SmallVector<int64_t, 4> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = channels.numel();
  return channels.reshape(sizes).to(statistics_dtype(input));
}

void update(const OptionalTensor &running, const Tensor &now, double momentum) {
  if (is_given(running)) {
    running->copy_(running->to(now.scalar_type()).mul(1 - momentum).add(now, momentum));
  }
}

std::pair<Tensor, Tensor> mean_and_variance(const Tensor &input) {
  const auto dimensions = reduced(input);
  auto [variance, mean] = at::var_mean(wide(input), dimensions, /*unbiased=*/false);
  return {std::move(mean), std::move(variance)};
}

std::tuple<Tensor, Tensor> batch_norm_stats(const Tensor &input, double epsilon) {
  const BelowAutograd below_autograd;
  const auto [mean, variance] = mean_and_variance(input);
  return {mean, variance.add(epsilon).rsqrt()};
}

std::tuple<Tensor, Tensor> batch_norm_update_stats(const Tensor &input,
                                                   const OptionalTensor &running_mean,
                                                   const OptionalTensor &running_variance,
                                                   double momentum) {
  const BelowAutograd below_autograd;
  const auto [mean, variance] = mean_and_variance(input);
  const auto count = static_cast<double>(input.numel() / mean.numel());
  update(running_mean, mean, momentum);
  update(running_variance, variance.mul(count / (count - 1)), momentum);
  return {mean, variance};
}

Tensor normalize(const Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                 const Tensor &mean, const Tensor &inverse, double) {
  const BelowAutograd below_autograd;
  auto result = wide(input).sub(along(mean, input)).mul_(along(inverse, input));
  if (is_given(weight)) {
    result.mul_(along(*weight, input));
  }
  if (is_given(bias)) {
    result.add_(along(*bias, input));
  }
  return result.to(input.scalar_type());
}

Tensor &normalize_out(const Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                      const Tensor &mean, const Tensor &inverse, double epsilon, Tensor &out) {
  const auto result = normalize(input, weight, bias, mean, inverse, epsilon);
  const BelowAutograd below_autograd;
  return into(out, result);
}

// Combines the statistics of all devices. `means` and `inverses` have one row per device, and
// `counts` its number of elements. Returns the mean and inverse deviation.
std::tuple<Tensor, Tensor> gather(const Tensor &means, const Tensor &inverses,
                                  const OptionalTensor &running_mean,
                                  const OptionalTensor &running_variance, double momentum,
                                  double epsilon, const Tensor &counts) {
  const auto weights = counts.to(means.scalar_type()).reshape({-1, 1});
  const auto total = weights.sum();
  const auto mean = means.mul(weights).sum(0).div(total);
  const auto variances = inverses.pow(-2).sub(epsilon);
  const auto squares = means.sub(mean).square().add(variances).mul(weights).sum(0);
  update(running_mean, mean, momentum);
  update(running_variance, squares.div(total.sub(1)), momentum);
  return {mean, squares.div(total).add(epsilon).rsqrt()};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats_with_counts(
    const Tensor &, const Tensor &means, const Tensor &inverses, const OptionalTensor &running_mean,
    const OptionalTensor &running_variance, double momentum, double epsilon, const Tensor &counts) {
  const BelowAutograd below_autograd;
  return gather(means, inverses, running_mean, running_variance, momentum, epsilon, counts);
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats(const Tensor &, const Tensor &means,
                                                   const Tensor &inverses,
                                                   const OptionalTensor &running_mean,
                                                   const OptionalTensor &running_variance,
                                                   double momentum, double epsilon, int64_t count) {
  const BelowAutograd below_autograd;
  const auto counts = at::full({means.size(0)}, count, means.options());
  return gather(means, inverses, running_mean, running_variance, momentum, epsilon, counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
batch_norm_backward_reduce(const Tensor &gradient, const Tensor &input, const Tensor &mean,
                           const Tensor &inverse, const OptionalTensor &weight, bool for_input,
                           bool for_weight, bool for_bias) {
  const BelowAutograd below_autograd;
  const auto dimensions = reduced(input);
  const auto wide_gradient = gradient.to(statistics_dtype(input));
  const auto sum = wide_gradient.sum(dimensions);
  const auto product = wide(input).sub(along(mean, input)).mul_(wide_gradient).sum(dimensions);
  const auto dtype = is_given(weight) ? weight->scalar_type() : sum.scalar_type();
  return {for_input ? sum : Tensor(), for_input ? product : Tensor(),
          for_weight ? product.mul(inverse).to(dtype) : Tensor(),
          for_bias
              ? (for_input ? sum.to(dtype, /*non_blocking=*/false, /*copy=*/true) : sum.to(dtype))
              : Tensor()};
}

Tensor batch_norm_backward_elemt(const Tensor &gradient, const Tensor &input, const Tensor &mean,
                                 const Tensor &inverse, const OptionalTensor &weight,
                                 const Tensor &sum, const Tensor &product, const Tensor &counts) {
  const BelowAutograd below_autograd;
  const auto share = counts.sum().to(statistics_dtype(input)).reciprocal();
  const auto slope = inverse.square().mul(product).mul(share);
  auto result = gradient.to(statistics_dtype(input)).sub(along(sum.mul(share), input));
  result.sub_(wide(input).sub(along(mean, input)).mul_(along(slope, input)));
  result.mul_(along(inverse, input));
  if (is_given(weight)) {
    result.mul_(along(*weight, input));
  }
  return result.to(input.scalar_type());
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("batch_norm_stats", &batch_norm_stats);
  library.impl("batch_norm_update_stats", &batch_norm_update_stats);
  library.impl("batch_norm_elemt", &normalize);
  library.impl("batch_norm_elemt.out", &normalize_out);
  library.impl("batch_norm_gather_stats", &batch_norm_gather_stats);
  library.impl("batch_norm_gather_stats_with_counts", &batch_norm_gather_stats_with_counts);
  library.impl("batch_norm_backward_reduce", &batch_norm_backward_reduce);
  library.impl("batch_norm_backward_elemt", &batch_norm_backward_elemt);
}

} // namespace openreg
