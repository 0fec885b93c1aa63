// Launches of CUDA's two fused attention kernels.
//
// Each launch returns results of the shapes and layouts that the CUDA kernel returns. What it
// returns, takes and frees in memory is that of the kernel's CUDA operator (memory_plan.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

namespace openreg {

// The arguments of both kernels, in PyTorch's terms.
struct AttentionArguments {
  const at::Tensor &query, &key, &value;
  double dropout;
  bool is_causal;
  std::optional<double> scale; // by default 1 / sqrt(head size)
};

struct FlashResults {
  at::Tensor output, logsumexp;
  at::Tensor rng_state; // where dropout's words begin: seed and offset
  at::Tensor unused;
  at::Tensor weights; // after dropout, if requested
};

FlashResults launch_flash(const AttentionArguments &arguments, bool returns_weights);

// What PyTorch's operators return: output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, seed,
// offset, debug_attn_mask. The cumulative lengths are undefined, because only packed sequences have
// them. max_q and max_k are the lengths.
using OperatorResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                                   c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;
OperatorResults operator_results(const AttentionArguments &arguments, FlashResults results);

// Returns the gradients of query, key and value.
std::tuple<at::Tensor, at::Tensor, at::Tensor>
launch_flash_backward(const AttentionArguments &arguments, const at::Tensor &gradient,
                      const at::Tensor &output, const at::Tensor &logsumexp,
                      const at::Tensor &rng_state, const at::Tensor &unused);

struct EfficientResults {
  at::Tensor output;
  at::Tensor logsumexp; // one for each query, rounded up to 32; empty if not requested
  // Where dropout's words begin. On the host, but in a capture, and where CUDA's are on the device
  // (compat/attention.h).
  at::Tensor seed, offset;
};

EfficientResults launch_efficient(const AttentionArguments &arguments,
                                  const std::optional<at::Tensor> &bias, bool returns_logsumexp);

// Returns the `wanted` gradients of query, key, value and bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>
launch_efficient_backward(const AttentionArguments &arguments, const at::Tensor &gradient,
                          const at::Tensor &bias, const at::Tensor &output,
                          const at::Tensor &logsumexp, const at::Tensor &seed,
                          const at::Tensor &offset, const std::array<bool, 4> &wanted);

} // namespace openreg
