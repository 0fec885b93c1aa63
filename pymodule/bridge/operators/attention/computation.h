// Attention on the host: softmax(scale * Q K^T + bias) V for tensors of (batch, heads, length, head
// size), and its gradients. The key and value may have fewer heads than the query, which then share
// them.
//
// These functions get CPU tensors. If the CPU's flash kernel supports the call, it computes it, and
// the values equal those of the CPU bit for bit. Otherwise matmul and softmax do, in float32 for
// half precision.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

#include "generator/generator.h"

namespace openreg {

struct Attention {
  std::optional<at::Tensor>
      bias;              // added to the scores, or of bool: false where attention is forbidden
  double dropout;        // probability, from 0 to 1
  openreg_philox philox; // where dropout's random words begin
  bool is_causal;        // each query sees the keys up to its own position
  double scale;
};

// Returns what the scores are multiplied by if a call does not say it.
double scale_of(const at::Tensor &query, std::optional<double> scale);

struct Attended {
  at::Tensor output;    // (batch, heads, queries, head size of the value), in any layout
  at::Tensor logsumexp; // of each query's scores: (batch, heads, queries), in any layout
};

Attended attend(const Attention &attention, const at::Tensor &query, const at::Tensor &key,
                const at::Tensor &value);

// Returns the weights after dropout: (batch, heads, queries, keys). Dropped ones are negative, as
// CUDA returns them.
at::Tensor attention_weights(const Attention &attention, const at::Tensor &query,
                             const at::Tensor &key);

// Of query, key, value and bias. Those that are not wanted may be undefined.
using AttentionGradients = std::array<at::Tensor, 4>;

AttentionGradients attention_gradients(const Attention &attention, const at::Tensor &gradient,
                                       const at::Tensor &query, const at::Tensor &key,
                                       const at::Tensor &value, const Attended &attended,
                                       const std::array<bool, 4> &wanted);

// Returns the gradient of a bias with rows of a multiple of 16 elements, as CUDA's memory-efficient
// kernel returns it.
at::Tensor with_padded_rows(const at::Tensor &gradient);

} // namespace openreg
