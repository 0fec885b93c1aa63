// CUDA's fused attention operators, in CUDA mode.

#include <torch/library.h>

#include <tuple>
#include <utility>

#include "core/device_type.h"
#include "core/registration.h"
#include "operators/attention/launches.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

OperatorResults flash(const Tensor &query, const Tensor &key, const Tensor &value, double dropout,
                      bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  const AttentionArguments arguments{query, key, value, dropout, is_causal, scale};
  return operator_results(arguments, launch_flash(arguments, return_debug_mask));
}

std::tuple<Tensor, Tensor, Tensor>
flash_backward(const Tensor &gradient, const Tensor &query, const Tensor &key, const Tensor &value,
               const Tensor &output, const Tensor &logsumexp, const Tensor &, const Tensor &,
               c10::SymInt, c10::SymInt, double dropout, bool is_causal, const Tensor &rng_state,
               const Tensor &unused, std::optional<double> scale) {
  return launch_flash_backward({query, key, value, dropout, is_causal, scale}, gradient, output,
                               logsumexp, rng_state, unused);
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
efficient(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias,
          bool compute_log_sumexp, double dropout, bool is_causal, std::optional<double> scale) {
  auto results =
      launch_efficient({query, key, value, dropout, is_causal, scale}, bias, compute_log_sumexp);
  return {std::move(results.output), std::move(results.logsumexp), std::move(results.seed),
          std::move(results.offset)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
efficient_backward(const Tensor &gradient, const Tensor &query, const Tensor &key,
                   const Tensor &value, const Tensor &bias, const Tensor &output,
                   const Tensor &logsumexp, const Tensor &seed, const Tensor &offset,
                   double dropout, std::array<bool, 4> wanted, bool is_causal,
                   std::optional<double> scale) {
  if (!gradient.defined()) {
    return {};
  }
  return launch_efficient_backward({query, key, value, dropout, is_causal, scale}, gradient, bias,
                                   output, logsumexp, seed, offset, wanted);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  if (in_cuda_mode()) {
    library.impl("_scaled_dot_product_flash_attention", &flash);
    library.impl("_scaled_dot_product_flash_attention_backward", &flash_backward);
    library.impl("_scaled_dot_product_efficient_attention", &efficient);
    library.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
  }
}

} // namespace openreg
