// Attention over a batch of sequences, on the host.
//
// Tensors are (batch, length, heads, head size). Sequences of different lengths can be packed: the
// rows of all of them in one tensor, with the row at which each begins and, at the end, the number
// of rows. A packed tensor is (rows, heads, head size), or has a batch of 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "operators/attention/computation.h"

namespace openreg {

// Which keys a query sees. Where all are given, all must allow the key.
struct AttentionMask {
  bool is_causal = false;         // none behind the query's own position
  bool is_aligned_at_end = false; // the last query is at the last key; else the first at the first
  std::optional<int64_t> before, after; // so many keys before and behind the query's position
  std::optional<at::Tensor> bias;       // added to the scores: (batch, heads, queries, keys)
};

// Where sequences lie. Integers on the host; each may be missing.
struct SequenceRows {
  std::optional<at::Tensor> query_starts, key_starts; // of packed sequences
  std::optional<at::Tensor> key_counts; // the keys of each sequence that exist, from the beginning
  // Keys and values are pages: (pages, rows, heads, head size). Each row of `pages` has the pages
  // of one sequence, in order.
  std::optional<at::Tensor> pages;
};

// The sequences of one call.
class Sequences {
public:
  Sequences(const at::Tensor &query, const at::Tensor &key, SequenceRows rows);

  // How many computations the call takes: one for the whole batch if all sequences are alike.
  int64_t size() const { return size_; }
  // How many sequences there are.
  int64_t count() const { return count_; }

  // The part of one computation, as (batch, heads, length, head size), in a tensor that is laid out
  // as the query, or as the key. It shares memory with the tensor, but for pages.
  at::Tensor queries(const at::Tensor &tensor, int64_t i) const;
  at::Tensor keys(const at::Tensor &tensor, int64_t i) const;

  // The same of logsumexp, which is (heads, rows) if `is_packed`, else (sequences, heads, length).
  at::Tensor logsumexp(const at::Tensor &tensor, int64_t i, bool is_packed) const;

  // The same of a bias of (1 or sequences, heads, longest query, longest key).
  at::Tensor bias(const at::Tensor &tensor, int64_t i, int64_t queries, int64_t keys) const;

  // `attention` with the mask of one computation, which has this query and key.
  Attention with_mask(Attention attention, const AttentionMask &mask, int64_t i,
                      const at::Tensor &query, const at::Tensor &key) const;

private:
  SequenceRows rows_;
  bool is_whole_;
  int64_t count_, size_;
  std::vector<int64_t> query_starts_, key_starts_, key_counts_;
};

} // namespace openreg
