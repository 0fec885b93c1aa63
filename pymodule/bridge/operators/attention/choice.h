// Which kernel CUDA uses for scaled_dot_product_attention.
#pragma once

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace openreg {

// A call of scaled_dot_product_attention. Sizes may be symbolic, because tracing asks, too.
struct AttentionCall {
  const at::Tensor &query, &key, &value;
  const std::optional<at::Tensor> &mask;
  double dropout;
  bool is_causal, shares_heads; // shares_heads: fewer heads of keys than of queries are allowed
};

// Whether CUDA's kernel supports the call on the device of the query. If not, returns why: the end
// of a sentence. Does not ask whether the program has enabled the kernel.
std::optional<std::string> flash_refuses(const AttentionCall &call);
std::optional<std::string> efficient_refuses(const AttentionCall &call);

// Whether the program has enabled flash_attention or efficient_attention and CUDA's kernel supports
// the call. If not and `warns`, warns and says why.
bool can_use(at::SDPBackend kernel, const AttentionCall &call, bool warns);

// Returns what CUDA chooses: flash_attention, efficient_attention or math, in the order of the
// program's priorities. cuDNN is never chosen. A program that enables only cuDNN, or in openreg
// mode only the overrideable kernel, gets one of the first two. Raises RuntimeError if the program
// has disabled all that support the call.
at::SDPBackend choose_on_cuda(const AttentionCall &call);

} // namespace openreg
