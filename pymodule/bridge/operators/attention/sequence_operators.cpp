// CUDA's lower operators of fused attention, which also take packed sequences: those that
// torch.nn.attention.varlen calls.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "core/registration.h"
#include "launch/host_operator.h"
#include "operators/attention/dropout_position.h"
#include "operators/attention/sequences.h"
#include "operators/composed.h"

namespace openreg {

namespace {

using at::Scalar;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using OptionalInt = std::optional<int64_t>;
using OptionalSymInt = std::optional<c10::SymInt>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

int64_t round_up(int64_t number, int64_t unit) {
  return (number + unit - 1) / unit * unit;
}

OptionalInt to_int(const OptionalSymInt &number) {
  return number.has_value() ? OptionalInt(number->expect_int()) : std::nullopt;
}

// ---- CPU kernels --------------------------------------------------------------------------------

// Computes all sequences. Writes to `output` and, if it is given, to `logsumexp`.
void attend_all(const Sequences &sequences, const Attention &attention, const AttentionMask &mask,
                const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &output,
                const OptionalTensor &logsumexp, bool is_packed) {
  if (query.is_meta()) {
    return;
  }
  for (int64_t i = 0; i < sequences.size(); ++i) {
    const auto queries = sequences.queries(query, i), keys = sequences.keys(key, i);
    const auto length = queries.size(2);
    if (length == 0 || keys.size(2) == 0) {
      continue;
    }
    const auto attended = attend(sequences.with_mask(attention, mask, i, queries, keys), queries,
                                 keys, sequences.keys(value, i));
    sequences.queries(output, i).copy_(attended.output);
    if (is_given(logsumexp)) {
      sequences.logsumexp(*logsumexp, i, is_packed).narrow(-1, 0, length).copy_(attended.logsumexp);
    }
  }
}

// Returns the gradients of query, key, value and, if wanted, bias.
AttentionGradients all_gradients(const Sequences &sequences, const Attention &attention,
                                 const AttentionMask &mask, const Tensor &gradient,
                                 const Tensor &query, const Tensor &key, const Tensor &value,
                                 const Tensor &output, const Tensor &logsumexp, bool is_packed,
                                 bool wants_bias) {
  AttentionGradients all{at::zeros_like(query, at::MemoryFormat::Contiguous),
                         at::zeros_like(key, at::MemoryFormat::Contiguous),
                         at::zeros_like(value, at::MemoryFormat::Contiguous),
                         wants_bias ? at::zeros_like(*mask.bias) : Tensor()};
  if (query.is_meta()) {
    return all;
  }
  for (int64_t i = 0; i < sequences.size(); ++i) {
    const auto queries = sequences.queries(query, i), keys = sequences.keys(key, i);
    const auto length = queries.size(2);
    if (length == 0 || keys.size(2) == 0) {
      continue;
    }
    const Attended attended{sequences.queries(output, i),
                            sequences.logsumexp(logsumexp, i, is_packed).narrow(-1, 0, length)};
    const auto gradients = attention_gradients(
        sequences.with_mask(attention, mask, i, queries, keys), sequences.queries(gradient, i),
        queries, keys, sequences.keys(value, i), attended, {true, true, true, wants_bias});
    sequences.queries(all[0], i).copy_(gradients[0]);
    sequences.keys(all[1], i).copy_(gradients[1]);
    sequences.keys(all[2], i).copy_(gradients[2]);
    if (wants_bias) {
      sequences.bias(all[3], i, length, keys.size(2)).add_(gradients[3]);
    }
  }
  return all;
}

// A negative number of keys means all.
AttentionMask flash_mask(bool is_causal, OptionalInt left, OptionalInt right) {
  const auto limit = [](OptionalInt count) {
    return count.has_value() && *count >= 0 ? count : std::nullopt;
  };
  return {is_causal, /*is_aligned_at_end=*/true, limit(left),
          is_causal ? std::nullopt : limit(right), std::nullopt};
}

// Writes to `output`, and returns logsumexp.
Tensor flash_into(const Tensor &output, const Tensor &query, const Tensor &key, const Tensor &value,
                  const SequenceRows &rows, const Attention &attention, const AttentionMask &mask) {
  const bool is_packed = is_given(rows.query_starts);
  const auto heads = query.size(-2);
  auto logsumexp =
      at::full(is_packed ? at::DimVector{heads, query.size(0)}
                         : at::DimVector{query.size(0), heads, query.size(1)},
               std::numeric_limits<double>::infinity(), query.options().dtype(at::kFloat));
  output.zero_();
  attend_all(Sequences(query, key, rows), attention, mask, query, key, value, output, logsumexp,
             is_packed);
  return logsumexp;
}

Five sequences_flash_forward(const Tensor &query, const Tensor &key, const Tensor &value,
                             const OptionalTensor &cum_seq_q, const OptionalTensor &cum_seq_k,
                             int64_t max_q, int64_t max_k, double dropout, bool is_causal,
                             bool returns_weights, std::optional<double> scale, OptionalInt left,
                             OptionalInt right, const OptionalTensor &seqused_k,
                             const OptionalTensor &block_table, const Scalar &seed,
                             const Scalar &offset, const Scalar &seed_address,
                             const Scalar &offset_address) {
  const HostKernel kernel;
  const auto position = position_of(seed, offset, seed_address, offset_address);
  const Attention attention{std::nullopt, dropout, own_words(position), false,
                            scale_of(query, scale)};
  auto output = at::empty_like(query);
  auto logsumexp =
      flash_into(output, query, key, value, {cum_seq_q, cum_seq_k, seqused_k, block_table},
                 attention, flash_mask(is_causal, left, right));
  auto weights = at::empty({0}, query.options());
  if (returns_weights && dropout > 0) {
    const Sequences sequences(query, key, {cum_seq_q, cum_seq_k, seqused_k, block_table});
    weights =
        at::zeros({sequences.count(), query.size(-2), round_up(max_q, 128), round_up(max_k, 128)},
                  query.options());
    for (int64_t i = 0; i < sequences.size(); ++i) {
      const auto queries = sequences.queries(query, i), keys = sequences.keys(key, i);
      const auto masked =
          sequences.with_mask(attention, flash_mask(is_causal, left, right), i, queries, keys);
      weights.narrow(0, i, queries.size(0))
          .narrow(2, 0, queries.size(2))
          .narrow(3, 0, keys.size(2))
          .copy_(attention_weights(masked, queries, keys));
    }
  }
  return {std::move(output), std::move(logsumexp), state_of(position, query),
          at::zeros({}, query.options().dtype(at::kUInt64)), std::move(weights)};
}

Tensor sequences_flash_forward_into(const Tensor &output, const Tensor &query, const Tensor &key,
                                    const Tensor &value, const OptionalTensor &cum_seq_q,
                                    const OptionalTensor &cum_seq_k, int64_t, int64_t, double,
                                    bool is_causal, bool, std::optional<double> scale,
                                    OptionalInt left, OptionalInt right,
                                    const OptionalTensor &seqused_k,
                                    const OptionalTensor &block_table) {
  const HostKernel kernel;
  const Attention attention{std::nullopt, 0, {0, 0}, false, scale_of(query, scale)};
  return flash_into(output, query, key, value, {cum_seq_q, cum_seq_k, seqused_k, block_table},
                    attention, flash_mask(is_causal, left, right));
}

Three sequences_flash_backward(const Tensor &gradient, const Tensor &query, const Tensor &key,
                               const Tensor &value, const Tensor &output, const Tensor &logsumexp,
                               const Tensor &cum_seq_q, const Tensor &cum_seq_k, int64_t, int64_t,
                               double dropout, bool is_causal, const Tensor &rng_state,
                               const Tensor &, std::optional<double> scale, OptionalInt left,
                               OptionalInt right) {
  const HostKernel kernel;
  const Attention attention{std::nullopt, dropout, words_of_state(dropout, rng_state), false,
                            scale_of(query, scale)};
  const auto [of_query, of_key, of_value, of_bias] =
      all_gradients(Sequences(query, key, {cum_seq_q, cum_seq_k, std::nullopt, std::nullopt}),
                    attention, flash_mask(is_causal, left, right), gradient, query, key, value,
                    output, logsumexp, cum_seq_q.defined(), /*wants_bias=*/false);
  return {laid_out_as(query, of_query), laid_out_as(key, of_key), laid_out_as(value, of_value)};
}

// `kind`: 0 without a mask, 1 causal from the beginning of the sequences, 2 from their ends.
AttentionMask efficient_mask(int64_t kind, OptionalInt window, const OptionalTensor &bias) {
  const auto before = window.has_value() && *window > 0 ? OptionalInt(*window - 1) : std::nullopt;
  return {kind != 0, /*is_aligned_at_end=*/kind == 2, before, std::nullopt, bias};
}

Four sequences_efficient_forward(const Tensor &query, const Tensor &key, const Tensor &value,
                                 const OptionalTensor &bias, const OptionalTensor &query_starts,
                                 const OptionalTensor &key_starts, int64_t longest, int64_t,
                                 double dropout, int64_t mask, bool returns_logsumexp,
                                 std::optional<double> scale, const OptionalTensor &key_counts,
                                 OptionalInt window, const Scalar &seed, const Scalar &offset,
                                 const Scalar &seed_address, const Scalar &offset_address) {
  const HostKernel kernel;
  const Attention attention{std::nullopt, dropout,
                            own_words(position_of(seed, offset, seed_address, offset_address)),
                            false, scale_of(query, scale)};
  const Sequences sequences(query, key, {query_starts, key_starts, key_counts, std::nullopt});
  auto sizes = query.sizes().vec();
  sizes[3] = value.size(3);
  auto output = at::zeros(sizes, query.options());
  auto logsumexp =
      at::zeros({sequences.count(), query.size(2), returns_logsumexp ? round_up(longest, 32) : 0},
                query.options().dtype(at::kFloat));
  attend_all(sequences, attention, efficient_mask(mask, window, bias), query, key, value, output,
             returns_logsumexp ? OptionalTensor(logsumexp) : std::nullopt, /*is_packed=*/false);
  auto [unused_seed, unused_offset] = unused_position(dropout, query);
  return {std::move(output), std::move(logsumexp), std::move(unused_seed),
          std::move(unused_offset)};
}

Four sequences_efficient_backward(const Tensor &gradient, const Tensor &query, const Tensor &key,
                                  const Tensor &value, const OptionalTensor &bias,
                                  const Tensor &output, const OptionalTensor &query_starts,
                                  const OptionalTensor &key_starts, int64_t, int64_t,
                                  const Tensor &logsumexp, double dropout, const Tensor &seed,
                                  const Tensor &offset, int64_t mask, bool bias_requires_grad,
                                  std::optional<double> scale, OptionalInt, OptionalInt window,
                                  bool) {
  const HostKernel kernel;
  const Attention attention{std::nullopt, dropout, words_of_position(dropout, seed, offset), false,
                            scale_of(query, scale)};
  auto [of_query, of_key, of_value, of_bias] =
      all_gradients(Sequences(query, key, {query_starts, key_starts, std::nullopt, std::nullopt}),
                    attention, efficient_mask(mask, window, bias), gradient, query, key, value,
                    output, logsumexp, /*is_packed=*/false, bias_requires_grad && is_given(bias));
  return {std::move(of_query), std::move(of_key), std::move(of_value),
          of_bias.defined() ? with_padded_rows(of_bias) : of_bias};
}

// ---- the flash kernel ---------------------------------------------------------------------------

constexpr auto kMissingRow =
    "cumulative_sequence_length_q and cumulative_sequence_length_k must be "
    "both set or both not set";

void check_flash(const Tensor &query, const Tensor &key, const Tensor &value,
                 const OptionalTensor &cum_seq_q, const OptionalTensor &cum_seq_k,
                 const OptionalTensor &alibi_slopes, const OptionalTensor &pages, double dropout) {
  TORCH_CHECK(is_given(cum_seq_q) == is_given(cum_seq_k) || is_given(pages), kMissingRow);
  const auto dtype = query.scalar_type();
  TORCH_CHECK(dtype == at::kHalf || dtype == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type");
  TORCH_CHECK(key.scalar_type() == dtype, "query and key must have the same dtype");
  TORCH_CHECK(value.scalar_type() == dtype, "query and value must have the same dtype");
  const int64_t dimensions = is_given(cum_seq_q) ? 3 : 4;
  TORCH_CHECK(query.dim() == dimensions && key.dim() == (is_given(pages) ? 4 : dimensions) &&
                  value.dim() == key.dim(),
              "openreg: flash attention expects query, key and value of ", dimensions,
              " dimensions, got ", query.dim(), ", ", key.dim(), " and ", value.dim());
  for (const auto *starts : {&cum_seq_q, &cum_seq_k}) {
    TORCH_CHECK(!is_given(*starts) || (*starts)->scalar_type() == at::kInt,
                starts == &cum_seq_q ? "cu_seqlens_q" : "cu_seqlens_k", " must have dtype int32");
  }
  TORCH_CHECK(query.size(-1) <= 256,
              "FlashAttention forward only supports head dimension at most 256");
  TORCH_CHECK(query.size(-1) % 8 == 0,
              "head_size must be a multiple of 8, this is ensured by padding!");
  TORCH_CHECK(key.size(-2) > 0 && query.size(-2) % key.size(-2) == 0,
              "Number of heads in key/value must divide number of heads in query");
  TORCH_CHECK(!is_given(alibi_slopes), "This flash attention build does not support alibi.");
  TORCH_CHECK(0 <= dropout && dropout < 1, "openreg: dropout_p=", dropout,
              ": flash attention expects a probability from 0 to less than 1");
}

Five launch_sequences_flash(const Tensor &query, const Tensor &key, const Tensor &value,
                            const OptionalTensor &cum_seq_q, const OptionalTensor &cum_seq_k,
                            c10::SymInt max_q, c10::SymInt max_k, double dropout, bool is_causal,
                            bool return_debug_mask, std::optional<double> scale,
                            OptionalSymInt left, OptionalSymInt right,
                            const OptionalTensor &seqused_k, const OptionalTensor &alibi_slopes,
                            const OptionalTensor &pages, OptionalInt) {
  check_flash(query, key, value, cum_seq_q, cum_seq_k, alibi_slopes, pages, dropout);
  const auto count = is_given(cum_seq_q) ? cum_seq_q->numel() - 1 : query.size(0);
  constexpr int64_t kWordsPerHead = 32;
  const DropoutPosition at(reserve_words(query, dropout, count * query.size(-2) * kWordsPerHead));
  return launch_host<&sequences_flash_forward>(
      "openreg_host::_flash_attention_forward", query, key, value, cum_seq_q, cum_seq_k,
      max_q.expect_int(), max_k.expect_int(), dropout, is_causal, return_debug_mask, scale,
      to_int(left), to_int(right), seqused_k, pages, at.seed, at.offset, at.seed_address,
      at.offset_address);
}

Tensor flash_into_output(Tensor &output, const Tensor &query, const Tensor &key,
                         const Tensor &value, const OptionalTensor &cum_seq_q,
                         const OptionalTensor &cum_seq_k, c10::SymInt max_q, c10::SymInt max_k,
                         double dropout, bool is_causal, bool return_debug_mask,
                         std::optional<double> scale, OptionalSymInt left, OptionalSymInt right,
                         const OptionalTensor &seqused_k, const OptionalTensor &alibi_slopes,
                         const OptionalTensor &pages, OptionalInt) {
  check_flash(query, key, value, cum_seq_q, cum_seq_k, alibi_slopes, pages, dropout);
  TORCH_CHECK(dropout == 0, "openreg: dropout_p=", dropout, ": expected 0");
  TORCH_CHECK(output.sizes() == query.sizes() && output.scalar_type() == query.scalar_type(),
              "openreg: out is ", output.scalar_type(), output.sizes(), ": expected ",
              query.scalar_type(), query.sizes());
  return launch_host<&sequences_flash_forward_into>(
      "openreg_host::_flash_attention_forward_no_dropout_inplace",
      static_cast<const Tensor &>(output), query, key, value, cum_seq_q, cum_seq_k,
      max_q.expect_int(), max_k.expect_int(), dropout, is_causal, return_debug_mask, scale,
      to_int(left), to_int(right), seqused_k, pages);
}

Three flash_gradients(const Tensor &gradient, const Tensor &query, const Tensor &key,
                      const Tensor &value, const Tensor &output, const Tensor &logsumexp,
                      const Tensor &cum_seq_q, const Tensor &cum_seq_k, c10::SymInt max_q,
                      c10::SymInt max_k, double dropout, bool is_causal, const Tensor &rng_state,
                      const Tensor &unused, std::optional<double> scale, OptionalSymInt left,
                      OptionalSymInt right) {
  if (!gradient.defined()) {
    return {};
  }
  return launch_host<&sequences_flash_backward>(
      "openreg_host::_flash_attention_backward", gradient, query, key, value, output, logsumexp,
      cum_seq_q, cum_seq_k, max_q.expect_int(), max_k.expect_int(), dropout, is_causal, rng_state,
      unused, scale, to_int(left), to_int(right));
}

// ---- the memory-efficient kernel ----------------------------------------------------------------

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt>
launch_sequences_efficient(const Tensor &query, const Tensor &key, const Tensor &value,
                           const OptionalTensor &bias, const OptionalTensor &cu_seqlens_q,
                           const OptionalTensor &cu_seqlens_k, OptionalSymInt max_seqlen_q,
                           OptionalSymInt max_seqlen_k, double dropout, int64_t custom_mask_type,
                           bool compute_log_sumexp, std::optional<double> scale,
                           const OptionalTensor &seqlen_k, OptionalInt window_size) {
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
              "openreg: memory-efficient attention expects query, key and value of 4 dimensions, "
              "got ",
              query.dim(), ", ", key.dim(), " and ", value.dim());
  TORCH_CHECK(
      query.size(0) == key.size(0) && query.size(2) == key.size(2) &&
          query.size(3) == key.size(3) && key.sizes().slice(0, 3) == value.sizes().slice(0, 3),
      "openreg: memory-efficient attention expects the batch and heads of the query for key "
      "and value, got ",
      query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  const auto dtype = query.scalar_type();
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "Only fp32, half & bf16 supported at the moment");
  const bool is_packed = is_given(cu_seqlens_q);
  TORCH_CHECK(is_packed == is_given(cu_seqlens_k), kMissingRow);
  TORCH_CHECK(!is_packed || query.size(0) == 1, "cu_seqlen only supports batch_size=1");
  TORCH_CHECK(!is_packed || (max_seqlen_q.has_value() && max_seqlen_k.has_value()),
              "openreg: packed sequences need max_seqlen_q and max_seqlen_k");
  TORCH_CHECK(0 <= custom_mask_type && custom_mask_type <= 2 &&
                  (custom_mask_type != 0 || !window_size.has_value() || *window_size <= 0),
              "custom_mask_type not supported");
  const auto longest_query = is_packed ? max_seqlen_q->expect_int() : query.size(1);
  const auto longest_key = is_packed ? max_seqlen_k->expect_int() : key.size(1);
  const auto count = is_packed ? cu_seqlens_q->numel() - 1 : query.size(0);
  const auto position =
      reserve_words(query, dropout, count * query.size(2) * longest_query * longest_key);
  const DropoutPosition at(position);
  auto [output, logsumexp, seed, offset] = launch_host<&sequences_efficient_forward>(
      "openreg_host::_efficient_attention_forward", query, key, value, bias, cu_seqlens_q,
      cu_seqlens_k, longest_query, longest_key, dropout, custom_mask_type, compute_log_sumexp,
      scale, seqlen_k, window_size, at.seed, at.offset, at.seed_address, at.offset_address);
  if (!seed.defined()) {
    std::tie(seed, offset) = position_tensors(position, query);
  }
  return {std::move(output), std::move(logsumexp), std::move(seed),
          std::move(offset), longest_query,        longest_key};
}

Four efficient_gradients(const Tensor &gradient, const Tensor &query, const Tensor &key,
                         const Tensor &value, const OptionalTensor &bias, const Tensor &output,
                         const OptionalTensor &cu_seqlens_q, const OptionalTensor &cu_seqlens_k,
                         c10::SymInt max_seqlen_q, c10::SymInt max_seqlen_k,
                         const Tensor &logsumexp, double dropout, const Tensor &seed,
                         const Tensor &offset, int64_t custom_mask_type, bool bias_requires_grad,
                         std::optional<double> scale, OptionalInt num_splits_key,
                         OptionalInt window_size, bool shared_storage_dqdkdv) {
  if (!gradient.defined()) {
    return {};
  }
  return launch_host<&sequences_efficient_backward>(
      "openreg_host::_efficient_attention_backward", gradient, query, key, value, bias, output,
      cu_seqlens_q, cu_seqlens_k, max_seqlen_q.expect_int(), max_seqlen_k.expect_int(), logsumexp,
      dropout, seed, offset, custom_mask_type, bias_requires_grad, scale, num_splits_key,
      window_size, shared_storage_dqdkdv);
}

// ---- registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, "
              "Tensor? cum_seq_k, int max_q, int max_k, float dropout_p, bool is_causal, "
              "bool return_debug_mask, *, float? scale, int? window_size_left, "
              "int? window_size_right, Tensor? seqused_k, Tensor? block_table, Scalar seed, "
              "Scalar offset, Scalar seed_address, Scalar offset_address) -> "
              "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def("_flash_attention_forward_no_dropout_inplace(Tensor(a!) out, Tensor query, "
              "Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, int max_q, "
              "int max_k, float dropout_p, bool is_causal, bool return_debug_mask, *, "
              "float? scale, int? window_size_left, int? window_size_right, Tensor? seqused_k, "
              "Tensor? block_table) -> Tensor");
  library.def("_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
              "Tensor out, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, int max_q, "
              "int max_k, float dropout_p, bool is_causal, Tensor rng_state, Tensor unused, *, "
              "float? scale, int? window_size_left, int? window_size_right) -> "
              "(Tensor, Tensor, Tensor)");
  library.def("_efficient_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? bias, "
              "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, int max_seqlen_q, int max_seqlen_k, "
              "float dropout_p, int custom_mask_type, bool compute_log_sumexp, *, float? scale, "
              "Tensor? seqlen_k, "
              "int? window_size, Scalar seed, Scalar offset, Scalar seed_address, "
              "Scalar offset_address) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def("_efficient_attention_backward(Tensor grad_out_, Tensor query, Tensor key, "
              "Tensor value, Tensor? bias, Tensor out, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
              "int max_seqlen_q, int max_seqlen_k, Tensor logsumexp, float dropout_p, "
              "Tensor philox_seed, Tensor philox_offset, int custom_mask_type, "
              "bool bias_requires_grad, *, float? scale, int? num_splits_key, int? window_size, "
              "bool shared_storage_dqdkdv) -> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("_flash_attention_forward", &sequences_flash_forward);
  library.impl("_flash_attention_forward_no_dropout_inplace", &sequences_flash_forward_into);
  library.impl("_flash_attention_backward", &sequences_flash_backward);
  library.impl("_efficient_attention_forward", &sequences_efficient_forward);
  library.impl("_efficient_attention_backward", &sequences_efficient_backward);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_flash_attention_forward", &launch_sequences_flash);
  library.impl("_flash_attention_forward_no_dropout_inplace", &flash_into_output);
  library.impl("_flash_attention_backward", &flash_gradients);
  library.impl("_efficient_attention_forward", &launch_sequences_efficient);
  library.impl("_efficient_attention_backward", &efficient_gradients);
}

} // namespace openreg
