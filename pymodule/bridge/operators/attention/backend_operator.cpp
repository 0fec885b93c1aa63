// PyTorch's attention operator for backends, "overrideable", in openreg mode. PyTorch has a
// derivative for it but no kernel. It launches the kernel that CUDA would choose.

#include <ATen/ExpandUtils.h>
#include <ATen/Operators.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

#include "core/device_type.h"
#include "core/registration.h"
#include "launch/typed.h"
#include "operators/attention/choice.h"
#include "operators/attention/launches.h"
#include "operators/composed.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace ops = at::_ops;

// A program may call the operator by name. What CUDA would give to its math kernel goes to the
// memory-efficient one here.
bool takes_flash(const AttentionArguments &arguments, const OptionalTensor &bias) {
  return !flash_refuses({arguments.query, arguments.key, arguments.value, bias, arguments.dropout,
                         arguments.is_causal, /*shares_heads=*/true});
}

// CUDA's kernel takes a bias of the scores' shape.
Tensor expanded(const Tensor &bias, const AttentionArguments &arguments) {
  const auto &query = arguments.query;
  return bias.expand({query.size(0), query.size(1), query.size(2), arguments.key.size(2)});
}

// The seed and the offset are as the chosen kernel returns them.
OperatorResults fused_forward(const Tensor &query, const Tensor &key, const Tensor &value,
                              const OptionalTensor &bias, double dropout, bool is_causal,
                              bool return_debug_mask, std::optional<double> scale) {
  const AttentionArguments arguments{query, key, value, dropout, is_causal, scale};
  if (takes_flash(arguments, bias)) {
    return operator_results(arguments, launch_flash(arguments, return_debug_mask));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!return_debug_mask,
                              "openreg: return_debug_mask=True needs flash attention, which does "
                              "not support this call");
  const auto full_bias = is_given(bias) ? OptionalTensor(expanded(*bias, arguments)) : std::nullopt;
  auto results = launch_efficient(arguments, full_bias, /*returns_logsumexp=*/true);
  return operator_results(arguments,
                          {std::move(results.output), std::move(results.logsumexp),
                           std::move(results.seed), std::move(results.offset), Tensor()});
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
fused_backward(const Tensor &gradient, const Tensor &query, const Tensor &key, const Tensor &value,
               const Tensor &bias, std::array<bool, 4> wanted, const Tensor &output,
               const Tensor &logsumexp, const Tensor &, const Tensor &, c10::SymInt, c10::SymInt,
               double dropout, bool is_causal, const Tensor &seed, const Tensor &offset,
               std::optional<double> scale) {
  const AttentionArguments arguments{query, key, value, dropout, is_causal, scale};
  if (takes_flash(arguments, bias.defined() ? OptionalTensor(bias) : std::nullopt)) {
    auto [of_query, of_key, of_value] =
        launch_flash_backward(arguments, gradient, output, logsumexp, seed, offset);
    return {std::move(of_query), std::move(of_key), std::move(of_value), Tensor()};
  }
  auto [of_query, of_key, of_value, of_bias] = launch_efficient_backward(
      arguments, gradient, bias.defined() ? expanded(bias, arguments) : bias, output, logsumexp,
      seed, offset, wanted);
  return {std::move(of_query), std::move(of_key), std::move(of_value),
          of_bias.defined() ? at::sum_to(of_bias, bias.sizes()) : of_bias};
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  if (in_cuda_mode()) {
    return;
  }
  library.impl("_scaled_dot_product_fused_attention_overrideable", &fused_forward);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", &fused_backward);
  // Under tracers and vmap.
  register_typed<ops::_scaled_dot_product_flash_attention_for_cpu,
                 ops::_scaled_dot_product_flash_attention_for_cpu_backward>(library);
}

} // namespace openreg
