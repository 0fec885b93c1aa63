// CUDA's fused attention operators for nested tensors, in CUDA mode.
//
// The sequences become one packed tensor and their cumulative lengths, for the operators of
// sequence_operators.cpp.

#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/device_type.h"
#include "core/registration.h"
#include "operators/attention/launches.h"
#include "operators/composed.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The numbers of a custom mask.
enum CustomMask : int64_t { kNone = 0, kCausalFromTopLeft = 1 };

// The sequences of a nested tensor [batch, heads, *, head size].
struct Packed {
  Tensor sizes;  // one row per sequence: length, heads, head size; on the host
  Tensor packed; // all sequences, one after the other: [elements, heads, head size]
};

Packed pack(const Tensor &nested) {
  const auto rows = nested.transpose(1, 2).contiguous();
  const auto *impl = at::native::get_nested_tensor_impl(rows);
  const auto *first = impl->get_nested_sizes().const_data_ptr<int64_t>();
  return {impl->get_nested_sizes(), impl->get_buffer().view({-1, first[1], first[2]})};
}

// A tensor with one sequence or one head has it for all others.
void expand(Packed &sequences, int64_t batch, int64_t heads) {
  auto &[sizes, packed] = sequences;
  if (sizes.size(0) < batch) {
    sizes = sizes.repeat({batch, 1});
    packed = packed.repeat({batch, 1, 1});
  }
  if (packed.size(1) < heads) {
    sizes = sizes.clone();
    sizes.select(1, 1).fill_(heads);
    packed = packed.expand({-1, heads, -1});
  }
}

std::tuple<Packed, Packed, Packed> pack_all(const Tensor &query, const Tensor &key,
                                            const Tensor &value) {
  std::array<Packed, 3> all{pack(query), pack(key), pack(value)};
  int64_t batch = 0, heads = 0;
  for (const auto &each : all) {
    batch = std::max(batch, each.sizes.size(0));
    heads = std::max(heads, each.packed.size(1));
  }
  for (auto &each : all) {
    expand(each, batch, heads);
  }
  return {all[0], all[1], all[2]};
}

Tensor unpack(const Tensor &packed, const Tensor &sizes) {
  return at::detail::make_tensor<at::native::NestedTensorImpl>(packed.reshape({-1}), sizes)
      .transpose(1, 2);
}

// Where each sequence begins, and the end of the last one; and the length of the longest.
std::pair<Tensor, int64_t> starts_of(const Packed &sequences) {
  const auto lengths = sequences.sizes.select(1, 0);
  auto starts = at::zeros({lengths.size(0) + 1}, at::kInt);
  starts.slice(0, 1).copy_(lengths.cumsum(0));
  return {starts.to(sequences.packed.device()), lengths.max().item<int64_t>()};
}

OperatorResults flash(const Tensor &query, const Tensor &key, const Tensor &value, double dropout,
                      bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  const BelowAutograd below;
  const auto [queries, keys, values] = pack_all(query, key, value);
  auto [starts_q, longest_q] = starts_of(queries);
  auto [starts_k, longest_k] = starts_of(keys);
  auto [output, logsumexp, seed, offset, weights] = at::_flash_attention_forward(
      queries.packed, keys.packed, values.packed, starts_q, starts_k, longest_q, longest_k, dropout,
      is_causal, return_debug_mask, scale);
  return {unpack(output, queries.sizes),
          std::move(logsumexp),
          std::move(starts_q),
          std::move(starts_k),
          longest_q,
          longest_k,
          std::move(seed),
          std::move(offset),
          std::move(weights)};
}

std::tuple<Tensor, Tensor, Tensor>
flash_backward(const Tensor &gradient, const Tensor &query, const Tensor &key, const Tensor &value,
               const Tensor &output, const Tensor &logsumexp, const Tensor &starts_q,
               const Tensor &starts_k, c10::SymInt longest_q, c10::SymInt longest_k, double dropout,
               bool is_causal, const Tensor &rng_state, const Tensor &unused,
               std::optional<double> scale) {
  if (!gradient.defined()) {
    return {};
  }
  const BelowAutograd below;
  const auto [queries, keys, values] = pack_all(query, key, value);
  const auto [of_query, of_key, of_value] = at::_flash_attention_backward(
      pack(gradient).packed, queries.packed, keys.packed, values.packed, pack(output).packed,
      logsumexp, starts_q, starts_k, longest_q.expect_int(), longest_k.expect_int(), dropout,
      is_causal, rng_state, unused, scale);
  return {unpack(of_query, queries.sizes), unpack(of_key, keys.sizes),
          unpack(of_value, values.sizes)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient(const Tensor &query, const Tensor &key,
                                                     const Tensor &value, const OptionalTensor &,
                                                     bool compute_log_sumexp, double dropout,
                                                     bool is_causal, std::optional<double> scale) {
  const BelowAutograd below;
  const auto [queries, keys, values] = pack_all(query, key, value);
  const auto [starts_q, longest_q] = starts_of(queries);
  const auto [starts_k, longest_k] = starts_of(keys);
  auto results = at::_efficient_attention_forward(
      queries.packed.unsqueeze(0), keys.packed.unsqueeze(0), values.packed.unsqueeze(0),
      /*bias=*/std::nullopt, starts_q, starts_k, longest_q, longest_k, dropout,
      is_causal ? kCausalFromTopLeft : kNone, compute_log_sumexp, scale);
  auto sizes = queries.sizes.clone(); // values may have another head size
  sizes.select(1, 2).fill_(values.packed.size(2));
  return {unpack(std::get<0>(results), sizes), std::get<1>(std::move(results)),
          std::get<2>(std::move(results)), std::get<3>(std::move(results))};
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, nested, library) {
  if (in_cuda_mode()) {
    library.impl("_scaled_dot_product_flash_attention", &flash);
    library.impl("_scaled_dot_product_flash_attention_backward", &flash_backward);
    library.impl("_scaled_dot_product_efficient_attention", &efficient);
  }
}

} // namespace openreg
