// Layer and batch normalization of float16 and bfloat16, and batch normalization in evaluation.
//
// As on CUDA, the statistics of half precision are float32: those that forward returns, and those
// with which backward computes. The CPU's kernels do this only if the weights are float32. So these
// kernels pass float32 copies of the weights, which are host memory.

#include <ATen/AccumulateType.h>
#include <ATen/Operators.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>

#include <array>
#include <limits>
#include <tuple>

#include "core/dtypes.h"
#include "core/registration.h"
#include "launch/host_operator.h"
#include "launch/typed.h"
#include "operators/composed.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Whether the CPU's kernel would compute the statistics in half precision.
bool is_to_widen(const Tensor &input, const OptionalTensor &weight) {
  return is_half(input.scalar_type()) &&
         (!is_given(weight) || weight->scalar_type() == input.scalar_type());
}

OptionalTensor wide(const OptionalTensor &tensor) {
  return is_given(tensor) ? OptionalTensor(tensor->to(at::kFloat)) : std::nullopt;
}

// The kernel derives the dtype of the statistics from the weight, so there must be one.
Tensor wide_weight(const Tensor &input, const OptionalTensor &weight, at::IntArrayRef sizes) {
  return is_given(weight) ? weight->to(at::kFloat)
                          : at::ones(sizes, input.options().dtype(at::kFloat));
}

// Rounds the gradients to the dtype of the program's weights.
Three rounded(Three &&gradients, const Tensor &input) {
  auto &[of_input, of_weight, of_bias] = gradients;
  for (auto *gradient : {&of_weight, &of_bias}) {
    *gradient = gradient->defined() ? gradient->to(input.scalar_type()) : *gradient;
  }
  return std::move(gradients);
}

// ---- layers -------------------------------------------------------------------------------------

Three layer_norm_on_host(const Tensor &input, at::IntArrayRef shape, const OptionalTensor &weight,
                         const OptionalTensor &bias, double epsilon) {
  const HostKernel kernel;
  return at::native_layer_norm(input, shape, wide_weight(input, weight, shape), wide(bias),
                               epsilon);
}

Three layer_norm_backward_on_host(const Tensor &gradient, const Tensor &input,
                                  at::IntArrayRef shape, const Tensor &mean, const Tensor &rstd,
                                  const OptionalTensor &weight, const OptionalTensor &bias,
                                  std::array<bool, 3> mask) {
  const HostKernel kernel;
  mask[1] = mask[1] && is_given(weight);
  return rounded(at::native_layer_norm_backward(gradient, input, shape, mean, rstd,
                                                wide_weight(input, weight, shape), wide(bias),
                                                mask),
                 input);
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, "
              "Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)");
  library.def("native_layer_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, "
              "Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> "
              "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("native_layer_norm", &layer_norm_on_host);
  library.impl("native_layer_norm_backward", &layer_norm_backward_on_host);
}

Three native_layer_norm(const Tensor &input, c10::SymIntArrayRef shape,
                        const OptionalTensor &weight, const OptionalTensor &bias, double epsilon) {
  if (!is_to_widen(input, weight)) [[likely]] {
    return typed<ops::native_layer_norm>(input, shape, weight, bias, epsilon);
  }
  return launch_host<&layer_norm_on_host>("openreg_host::native_layer_norm", input,
                                          C10_AS_INTARRAYREF_SLOW(shape), weight, bias, epsilon);
}

Three native_layer_norm_backward(const Tensor &gradient, const Tensor &input,
                                 c10::SymIntArrayRef shape, const Tensor &mean, const Tensor &rstd,
                                 const OptionalTensor &weight, const OptionalTensor &bias,
                                 std::array<bool, 3> mask) {
  if (!is_to_widen(input, weight) || mean.scalar_type() != at::kFloat) [[likely]] {
    return typed<ops::native_layer_norm_backward>(gradient, input, shape, mean, rstd, weight, bias,
                                                  mask);
  }
  return launch_host<&layer_norm_backward_on_host>("openreg_host::native_layer_norm_backward",
                                                   gradient, input, C10_AS_INTARRAYREF_SLOW(shape),
                                                   mean, rstd, weight, bias, mask);
}

// ---- batches ------------------------------------------------------------------------------------

// In evaluation CUDA's kernel returns the statistics that it used; the CPU's returns none.
Three batch_norm_on_host(const Tensor &input, const OptionalTensor &weight,
                         const OptionalTensor &bias, const OptionalTensor &running_mean,
                         const OptionalTensor &running_variance, bool training, double momentum,
                         double epsilon) {
  const HostKernel kernel;
  const bool is_wide = is_to_widen(input, weight);
  const auto mean = is_wide ? wide(running_mean) : running_mean;
  const auto variance = is_wide ? wide(running_variance) : running_variance;
  auto results = at::native_batch_norm(
      input, is_wide ? OptionalTensor(wide_weight(input, weight, {input.size(1)})) : weight,
      is_wide ? wide(bias) : bias, mean, variance, training, momentum, epsilon);
  if (!training) {
    const auto dtype = at::toAccumulateType(input.scalar_type(), /*is_cuda=*/true);
    std::get<1>(results) = running_mean->to(dtype, /*non_blocking=*/false, /*copy=*/true);
    std::get<2>(results) = running_variance->to(dtype).add(epsilon).rsqrt_();
  } else if (is_wide && is_given(running_mean)) {
    running_mean->copy_(*mean);
    running_variance->copy_(*variance);
  }
  return results;
}

Three batch_norm_backward_on_host(const Tensor &gradient, const Tensor &input,
                                  const OptionalTensor &weight, const OptionalTensor &running_mean,
                                  const OptionalTensor &running_variance,
                                  const OptionalTensor &mean, const OptionalTensor &inverse,
                                  bool training, double epsilon, std::array<bool, 3> mask) {
  const HostKernel kernel;
  return rounded(at::native_batch_norm_backward(gradient, input,
                                                wide_weight(input, weight, {input.size(1)}),
                                                wide(running_mean), wide(running_variance),
                                                wide(mean), wide(inverse), training, epsilon, mask),
                 input);
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, "
              "Tensor(a!)? running_mean, Tensor(b!)? running_var, bool training, float momentum, "
              "float eps) -> (Tensor, Tensor, Tensor)");
  library.def("native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, "
              "Tensor? running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, "
              "bool train, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("native_batch_norm", &batch_norm_on_host);
  library.impl("native_batch_norm_backward", &batch_norm_backward_on_host);
}

Three launch_batch_norm(const Tensor &input, const OptionalTensor &weight,
                        const OptionalTensor &bias, const OptionalTensor &running_mean,
                        const OptionalTensor &running_variance, bool training, double momentum,
                        double epsilon) {
  if (training) { // it writes to them, which its schema does not say
    for (const auto *each : {&running_mean, &running_variance}) {
      if (each->has_value()) {
        make_writable(**each);
      }
    }
  }
  const bool is_evaluation =
      !training && is_given(running_mean) && is_given(running_variance) && input.dim() >= 2;
  if (!is_evaluation && (!is_to_widen(input, weight) || input.dim() < 2)) [[likely]] {
    return typed<ops::native_batch_norm>(input, weight, bias, running_mean, running_variance,
                                         training, momentum, epsilon);
  }
  return launch_host<&batch_norm_on_host>("openreg_host::native_batch_norm", input, weight, bias,
                                          running_mean, running_variance, training, momentum,
                                          epsilon);
}

Three native_batch_norm_legit(const Tensor &input, const OptionalTensor &weight,
                              const OptionalTensor &bias, Tensor &running_mean,
                              Tensor &running_variance, bool training, double momentum,
                              double epsilon) {
  return launch_batch_norm(input, weight, bias, running_mean, running_variance, training, momentum,
                           epsilon);
}

Three native_batch_norm_no_stats(const Tensor &input, const OptionalTensor &weight,
                                 const OptionalTensor &bias, bool training, double momentum,
                                 double epsilon) {
  return launch_batch_norm(input, weight, bias, std::nullopt, std::nullopt, training, momentum,
                           epsilon);
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
batch_norm_with_update(const Tensor &input, const OptionalTensor &weight,
                       const OptionalTensor &bias, Tensor &running_mean, Tensor &running_variance,
                       double momentum, double epsilon) {
  auto [result, mean, inverse] = launch_batch_norm(input, weight, bias, running_mean,
                                                   running_variance, true, momentum, epsilon);
  auto reserve = at::empty({0}, input.options().dtype(at::kByte)); // only cuDNN uses it
  return {std::move(result), std::move(mean), std::move(inverse), std::move(reserve)};
}

// CUDA's kernel for the layouts without channels last has statistics of the dtype of the weight.
bool has_fused_backward(const Tensor &input, bool training, const std::array<bool, 3> &mask) {
  const bool has_channels_last = input.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                                 input.is_contiguous(at::MemoryFormat::ChannelsLast3d) ||
                                 (input.is_contiguous() && input.stride(1) == 1);
  return mask[0] && (training || mask[1] || mask[2]) && !has_channels_last &&
         input.numel() <= std::numeric_limits<int>::max();
}

void check_statistics(const Tensor &input, const OptionalTensor &statistics, const char *name) {
  TORCH_CHECK(!is_given(statistics) || statistics->scalar_type() == input.scalar_type(),
              "Expected ", name, " to have type ", input.scalar_type(), " but got ",
              statistics->scalar_type());
}

Three launch_batch_norm_backward(const Tensor &gradient, const Tensor &input,
                                 const OptionalTensor &weight, const OptionalTensor &running_mean,
                                 const OptionalTensor &running_variance, const OptionalTensor &mean,
                                 const OptionalTensor &inverse, bool training, double epsilon,
                                 std::array<bool, 3> mask) {
  if (!is_to_widen(input, weight) || input.dim() < 2) [[likely]] {
    return typed<ops::native_batch_norm_backward>(gradient, input, weight, running_mean,
                                                  running_variance, mean, inverse, training,
                                                  epsilon, mask);
  }
  if (is_given(weight) && has_fused_backward(input, training, mask)) {
    check_statistics(input, running_mean, "running_mean");
    check_statistics(input, running_variance, "running_var");
  }
  return launch_host<&batch_norm_backward_on_host>(
      "openreg_host::native_batch_norm_backward", gradient, input, weight, running_mean,
      running_variance, mean, inverse, training, epsilon, mask);
}

// The backward of _batch_norm_with_update.
Three batch_norm_backward(const Tensor &gradient, const Tensor &input, const Tensor &weight,
                          const OptionalTensor &running_mean,
                          const OptionalTensor &running_variance, const OptionalTensor &mean,
                          const OptionalTensor &inverse, bool training, double epsilon,
                          std::array<bool, 3> mask, const Tensor &) {
  return launch_batch_norm_backward(gradient, input, weight, running_mean, running_variance, mean,
                                    inverse, training, epsilon, mask);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  register_one<ops::native_layer_norm>(library, &native_layer_norm);
  register_one<ops::native_layer_norm_backward>(library, &native_layer_norm_backward);
  register_one<ops::native_batch_norm>(library, &launch_batch_norm);
  register_one<ops::native_batch_norm_backward>(library, &launch_batch_norm_backward);
  register_one<ops::_native_batch_norm_legit>(library, &native_batch_norm_legit);
  register_one<ops::_native_batch_norm_legit_no_stats>(library, &native_batch_norm_no_stats);
  register_one<ops::_batch_norm_with_update>(library, &batch_norm_with_update);
  register_one<ops::batch_norm_backward>(library, &batch_norm_backward);
}

} // namespace openreg
