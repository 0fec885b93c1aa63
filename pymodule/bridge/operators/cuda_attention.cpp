// CUDA's flash attention operator, in CUDA mode. scaled_dot_product_attention uses it under tracers
// and vmap, and PyTorch's context parallelism calls it by name. The CPU's flash kernel computes it,
// and the results get CUDA's layout.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <tuple>

#include "core/device_type.h"
#include "core/registration.h"

namespace openreg {

namespace {

using at::Tensor;

void check_arguments(double dropout, bool returns_debug_mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout == 0 && !returns_debug_mask,
      "openreg: _scaled_dot_product_flash_attention: dropout_p=", dropout,
      ", return_debug_mask=", returns_debug_mask,
      ": expected 0 and False. For dropout, call scaled_dot_product_attention.");
}

// Returns a tensor with the strides of a new tensor like `like`.
Tensor laid_out_as(const Tensor &like, const Tensor &tensor) {
  auto result = at::empty_like(like);
  return result.strides() == tensor.strides() ? tensor : result.copy_(tensor);
}

// Results, by PyTorch's names: output; logsumexp; cum_seq_q and cum_seq_k, undefined because only
// packed sequences have them; max_q and max_k, the lengths; rng_state and an unused tensor of
// dropout; debug_attn_mask.
std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
forward(const Tensor &query, const Tensor &key, const Tensor &value, double dropout, bool is_causal,
        bool return_debug_mask, std::optional<double> scale) {
  check_arguments(dropout, return_debug_mask);
  const auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout, is_causal, std::nullopt, scale);
  const auto numbers = query.options().dtype(at::kUInt64);
  return {laid_out_as(query, output),
          logsumexp.contiguous(),
          Tensor(),
          Tensor(),
          query.sym_size(2),
          key.sym_size(2),
          at::empty({2}, numbers),
          at::empty({}, numbers),
          at::empty({0}, query.options())};
}

std::tuple<Tensor, Tensor, Tensor>
backward(const Tensor &grad_output, const Tensor &query, const Tensor &key, const Tensor &value,
         const Tensor &output, const Tensor &logsumexp, const Tensor &, const Tensor &, c10::SymInt,
         c10::SymInt, double dropout, bool is_causal, const Tensor &, const Tensor &,
         std::optional<double> scale) {
  check_arguments(dropout, false);
  const auto [grad_query, grad_key, grad_value] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(grad_output, query, key, value,
                                                               output, logsumexp, dropout,
                                                               is_causal, std::nullopt, scale);
  return {laid_out_as(query, grad_query), laid_out_as(key, grad_key),
          laid_out_as(value, grad_value)};
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  if (in_cuda_mode()) {
    library.impl("_scaled_dot_product_flash_attention", &forward);
    library.impl("_scaled_dot_product_flash_attention_backward", &backward);
  }
}

} // namespace openreg
