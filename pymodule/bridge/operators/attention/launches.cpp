// The host kernels (launch/host_operator.h) return tensors only. They also get the position of
// dropout's random words.

#include "operators/attention/launches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <utility>

#include "launch/host_operator.h"
#include "operators/attention/computation.h"
#include "operators/attention/dropout_position.h"

namespace openreg {

namespace {

using at::Scalar;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// ---- CPU kernels --------------------------------------------------------------------------------

// Returns a tensor in which the heads of each position are contiguous.
Tensor with_heads_inside(const Tensor &tensor) {
  return tensor.transpose(1, 2).contiguous().transpose(1, 2);
}

Five host_flash(const Tensor &query, const Tensor &key, const Tensor &value, double dropout,
                bool is_causal, bool returns_weights, std::optional<double> scale,
                const Scalar &seed, const Scalar &offset, const Scalar &seed_address,
                const Scalar &offset_address) {
  const HostKernel kernel;
  const auto position = position_of(seed, offset, seed_address, offset_address);
  const Attention attention{std::nullopt, dropout, own_words(position), is_causal,
                            scale_of(query, scale)};
  const auto [output, logsumexp] = attend(attention, query, key, value);
  return {laid_out_as(query, output), logsumexp.contiguous(), state_of(position, query),
          at::zeros({}, query.options().dtype(at::kUInt64)),
          returns_weights ? attention_weights(attention, query, key)
                          : at::empty({0}, query.options())};
}

Three host_flash_backward(const Tensor &gradient, const Tensor &query, const Tensor &key,
                          const Tensor &value, const Tensor &output, const Tensor &logsumexp,
                          const Tensor &, const Tensor &, int64_t, int64_t, double dropout,
                          bool is_causal, const Tensor &rng_state, const Tensor &,
                          std::optional<double> scale) {
  const HostKernel kernel;
  const Attention attention{std::nullopt, dropout, words_of_state(dropout, rng_state), is_causal,
                            scale_of(query, scale)};
  const auto [of_query, of_key, of_value, of_bias] = attention_gradients(
      attention, gradient, query, key, value, {output, logsumexp}, {true, true, true, false});
  return {laid_out_as(query, of_query), laid_out_as(key, of_key), laid_out_as(value, of_value)};
}

// Returns logsumexp in rows of a multiple of 32.
Tensor padded(const Tensor &logsumexp) {
  const auto &sizes = logsumexp.sizes();
  auto result = at::zeros({sizes[0], sizes[1], (sizes[2] + 31) / 32 * 32},
                          logsumexp.options().dtype(at::kFloat));
  result.narrow(-1, 0, sizes[2]).copy_(logsumexp);
  return result;
}

Four host_efficient(const Tensor &query, const Tensor &key, const Tensor &value,
                    const OptionalTensor &bias, bool returns_logsumexp, double dropout,
                    bool is_causal, std::optional<double> scale, const Scalar &seed,
                    const Scalar &offset, const Scalar &seed_address,
                    const Scalar &offset_address) {
  const HostKernel kernel;
  const Attention attention{bias, dropout,
                            own_words(position_of(seed, offset, seed_address, offset_address)),
                            is_causal, scale_of(query, scale)};
  const auto [output, logsumexp] = attend(attention, query, key, value);
  auto [unused_seed, unused_offset] = unused_position(dropout, query);
  return {with_heads_inside(output),
          returns_logsumexp
              ? padded(logsumexp)
              : at::empty({query.size(0), query.size(1), 0}, query.options().dtype(at::kFloat)),
          std::move(unused_seed), std::move(unused_offset)};
}

Four host_efficient_backward(const Tensor &gradient, const Tensor &query, const Tensor &key,
                             const Tensor &value, const Tensor &bias, const Tensor &output,
                             const Tensor &logsumexp, const Tensor &seed, const Tensor &offset,
                             double dropout, std::array<bool, 4> wanted, bool is_causal,
                             std::optional<double> scale) {
  const HostKernel kernel;
  const Attention attention{bias.defined() ? OptionalTensor(bias) : std::nullopt, dropout,
                            words_of_position(dropout, seed, offset), is_causal,
                            scale_of(query, scale)};
  const auto of = attention_gradients(
      attention, gradient, query, key, value,
      {output, logsumexp.size(-1) > 0 ? logsumexp.narrow(-1, 0, query.size(2)) : logsumexp},
      wanted);
  const auto laid_out = [](const Tensor &tensor, const Tensor &like) {
    return tensor.defined() ? with_heads_inside(tensor) : with_heads_inside(at::zeros_like(like));
  };
  return {laid_out(of[0], query), laid_out(of[1], key), laid_out(of[2], value),
          of[3].defined() ? with_padded_rows(of[3]) : of[3]};
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, "
              "float dropout_p, bool is_causal, bool return_debug_mask, *, float? scale, "
              "Scalar seed, Scalar offset, Scalar seed_address, Scalar offset_address) -> "
              "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def("_scaled_dot_product_flash_attention_backward(Tensor grad_out, Tensor query, "
              "Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor cum_seq_q, "
              "Tensor cum_seq_k, int max_q, int max_k, float dropout_p, bool is_causal, "
              "Tensor philox_seed, Tensor philox_offset, *, float? scale) -> "
              "(Tensor, Tensor, Tensor)");
  library.def("_scaled_dot_product_efficient_attention(Tensor query, Tensor key, Tensor value, "
              "Tensor? attn_bias, bool compute_log_sumexp, float dropout_p, bool is_causal, *, "
              "float? scale, Scalar seed, Scalar offset, Scalar seed_address, "
              "Scalar offset_address) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def("_scaled_dot_product_efficient_attention_backward(Tensor grad_out_, Tensor query, "
              "Tensor key, Tensor value, Tensor attn_bias, Tensor out, Tensor logsumexp, "
              "Tensor philox_seed, Tensor philox_offset, float dropout_p, "
              "bool[4] grad_input_mask, bool is_causal, *, float? scale) -> "
              "(Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("_scaled_dot_product_flash_attention", &host_flash);
  library.impl("_scaled_dot_product_flash_attention_backward", &host_flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", &host_efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", &host_efficient_backward);
}

// ---- launches -----------------------------------------------------------------------------------

void check_arguments(const AttentionArguments &arguments) {
  const auto &[query, key, value, dropout, is_causal, scale] = arguments;
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
              "openreg: fused attention expects query, key and value of 4 dimensions (batch, "
              "heads, length, head size), got ",
              query.dim(), ", ", key.dim(), " and ", value.dim());
  TORCH_CHECK(key.size(1) > 0 && query.size(1) % key.size(1) == 0 && key.size(1) == value.size(1),
              "openreg: fused attention expects a number of heads that is divisible by that of key "
              "and value, got ",
              query.size(1), ", ", key.size(1), " and ", value.size(1));
  TORCH_CHECK(0 <= dropout && dropout <= 1, "openreg: dropout_p=", dropout,
              ": expected a probability from 0 to 1");
}

} // namespace

FlashResults launch_flash(const AttentionArguments &arguments, bool returns_weights) {
  check_arguments(arguments);
  const auto &[query, key, value, dropout, is_causal, scale] = arguments;
  constexpr int64_t kWordsPerHead = 32;
  const DropoutPosition at(
      reserve_words(query, dropout, query.size(0) * query.size(1) * kWordsPerHead));
  auto [output, logsumexp, rng_state, unused, weights] = launch_host<&host_flash>(
      "openreg_host::_scaled_dot_product_flash_attention", query, key, value, dropout, is_causal,
      returns_weights, scale, at.seed, at.offset, at.seed_address, at.offset_address);
  return {std::move(output), std::move(logsumexp), std::move(rng_state), std::move(unused),
          std::move(weights)};
}

OperatorResults operator_results(const AttentionArguments &arguments, FlashResults results) {
  return {std::move(results.output),
          std::move(results.logsumexp),
          Tensor(),
          Tensor(),
          arguments.query.sym_size(2),
          arguments.key.sym_size(2),
          std::move(results.rng_state),
          std::move(results.unused),
          std::move(results.weights)};
}

// The state of the generator is on the host, if the program made it itself.
Tensor beside(const Tensor &query, const Tensor &state) {
  return state.is_cpu() ? state.to(query.device()) : state;
}

Three launch_flash_backward(const AttentionArguments &arguments, const Tensor &gradient,
                            const Tensor &output, const Tensor &logsumexp, const Tensor &rng_state,
                            const Tensor &unused) {
  check_arguments(arguments);
  const auto &[query, key, value, dropout, is_causal, scale] = arguments;
  return launch_host<&host_flash_backward>(
      "openreg_host::_scaled_dot_product_flash_attention_backward", gradient, query, key, value,
      output, logsumexp, Tensor(), Tensor(), query.size(2), key.size(2), dropout, is_causal,
      beside(query, rng_state), beside(query, unused), scale);
}

EfficientResults launch_efficient(const AttentionArguments &arguments, const OptionalTensor &bias,
                                  bool returns_logsumexp) {
  check_arguments(arguments);
  const auto &[query, key, value, dropout, is_causal, scale] = arguments;
  const auto position =
      reserve_words(query, dropout, query.size(0) * query.size(1) * query.size(2) * key.size(2));
  const DropoutPosition at(position);
  auto [output, logsumexp, seed, offset] =
      launch_host<&host_efficient>("openreg_host::_scaled_dot_product_efficient_attention", query,
                                   key, value, bias, returns_logsumexp, dropout, is_causal, scale,
                                   at.seed, at.offset, at.seed_address, at.offset_address);
  if (!seed.defined()) {
    std::tie(seed, offset) = position_tensors(position, query);
  }
  return {std::move(output), std::move(logsumexp), std::move(seed), std::move(offset)};
}

Four launch_efficient_backward(const AttentionArguments &arguments, const Tensor &gradient,
                               const Tensor &bias, const Tensor &output, const Tensor &logsumexp,
                               const Tensor &seed, const Tensor &offset,
                               const std::array<bool, 4> &wanted) {
  check_arguments(arguments);
  const auto &[query, key, value, dropout, is_causal, scale] = arguments;
  return launch_host<&host_efficient_backward>(
      "openreg_host::_scaled_dot_product_efficient_attention_backward", gradient, query, key, value,
      bias, output, logsumexp, seed, offset, dropout, wanted, is_causal, scale);
}

} // namespace openreg
