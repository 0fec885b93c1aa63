#include "operators/attention/sequences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "operators/composed.h"

namespace openreg {

namespace {

using at::Tensor;

std::vector<int64_t> numbers_of(const std::optional<Tensor> &tensor) {
  if (!is_given(tensor) || tensor->is_meta()) {
    return {};
  }
  const auto wide = tensor->to(at::kLong).contiguous();
  const auto *first = wide.const_data_ptr<int64_t>();
  return {first, first + wide.numel()};
}

// A part of a tensor of (batch, length, heads, head size) or (rows, heads, head size).
Tensor rows_of(const Tensor &tensor, const std::vector<int64_t> &starts, int64_t i) {
  const auto index = static_cast<size_t>(i);
  const auto one = starts.empty()
                       ? tensor.select(0, i)
                       : (tensor.dim() == 4 ? tensor.select(0, 0) : tensor)
                             .narrow(0, starts[index], starts[index + 1] - starts[index]);
  return one.unsqueeze(0).transpose(1, 2);
}

} // namespace

Sequences::Sequences(const Tensor &query, const Tensor &key, SequenceRows rows)
    : rows_(std::move(rows)), is_whole_(!is_given(rows_.query_starts) &&
                                        !is_given(rows_.key_counts) && !is_given(rows_.pages)),
      count_(is_given(rows_.query_starts) ? rows_.query_starts->numel() - 1 : query.size(0)),
      size_(is_whole_ ? 1 : count_), query_starts_(numbers_of(rows_.query_starts)),
      key_starts_(numbers_of(rows_.key_starts)), key_counts_(numbers_of(rows_.key_counts)) {
  const auto check_starts = [this](const std::vector<int64_t> &starts, int64_t end) {
    const auto numbers = static_cast<int64_t>(starts.size());
    TORCH_CHECK(starts.empty() || numbers == count_ + 1, "openreg: attention of ", count_,
                " sequences expects ", count_ + 1, " first rows, got ", numbers);
    for (size_t i = 1; i < starts.size(); ++i) {
      TORCH_CHECK(starts[0] >= 0 && starts[i - 1] <= starts[i] && starts[i] <= end,
                  "openreg: attention expects the first rows of the sequences in order, up to ",
                  end, " rows, got ", starts[i - 1], " and ", starts[i]);
    }
  };
  check_starts(query_starts_, query.size(-3));
  if (!is_given(rows_.pages)) {
    check_starts(key_starts_, key.size(-3));
  }
  const auto check_count = [this](const std::optional<Tensor> &tensor, const char *what) {
    TORCH_CHECK(!is_given(tensor) || (tensor->dim() > 0 && tensor->size(0) == count_),
                "openreg: attention of ", count_, " sequences expects as many ", what,
                ", got a tensor of ", tensor->sizes());
  };
  check_count(rows_.key_counts, "numbers of keys");
  check_count(rows_.pages, "rows of pages");
}

Tensor Sequences::queries(const Tensor &tensor, int64_t i) const {
  return is_whole_ ? tensor.transpose(1, 2) : rows_of(tensor, query_starts_, i);
}

Tensor Sequences::keys(const Tensor &tensor, int64_t i) const {
  if (is_whole_) {
    return tensor.transpose(1, 2);
  }
  const auto all = is_given(rows_.pages) ? tensor.index_select(0, rows_.pages->select(0, i))
                                               .flatten(0, 1)
                                               .unsqueeze(0)
                                               .transpose(1, 2)
                                         : rows_of(tensor, key_starts_, i);
  return key_counts_.empty()
             ? all
             : all.narrow(2, 0, std::min(all.size(2), key_counts_[static_cast<size_t>(i)]));
}

Tensor Sequences::logsumexp(const Tensor &tensor, int64_t i, bool is_packed) const {
  if (is_whole_) {
    return tensor;
  }
  const auto index = static_cast<size_t>(i);
  return is_packed
             ? tensor
                   .narrow(1, query_starts_[index], query_starts_[index + 1] - query_starts_[index])
                   .unsqueeze(0)
             : tensor.narrow(0, i, 1);
}

Tensor Sequences::bias(const Tensor &tensor, int64_t i, int64_t queries, int64_t keys) const {
  return is_whole_ ? tensor
                   : tensor.narrow(0, tensor.size(0) == 1 ? 0 : i, 1)
                         .narrow(2, 0, queries)
                         .narrow(3, 0, keys);
}

Attention Sequences::with_mask(Attention attention, const AttentionMask &mask, int64_t i,
                               const Tensor &query, const Tensor &key) const {
  const int64_t queries = query.size(2), keys = key.size(2);
  if (is_given(mask.bias)) {
    attention.bias = bias(*mask.bias, i, queries, keys);
  }
  const int64_t shift = mask.is_aligned_at_end ? keys - queries : 0;
  const bool has_window = mask.before.has_value() || mask.after.has_value();
  if (mask.is_causal && shift == 0 && !has_window && !is_given(attention.bias)) {
    attention.is_causal = true;
  } else if (mask.is_causal || has_window) {
    const auto at = at::arange(queries).unsqueeze(1) + shift - at::arange(keys);
    auto allowed = at >= (mask.is_causal ? 0 : -mask.after.value_or(keys + queries));
    if (mask.before.has_value()) {
      allowed.logical_and_(at <= *mask.before);
    }
    const auto added = is_given(attention.bias) ? *attention.bias : at::zeros({}, query.options());
    attention.bias = at::where(allowed, added, -std::numeric_limits<double>::infinity());
  }
  // Each computation draws its own words.
  attention.philox.seed -= static_cast<uint64_t>(i);
  return attention;
}

} // namespace openreg
