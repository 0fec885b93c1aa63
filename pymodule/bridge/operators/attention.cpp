// Fused attention: the device's implementation of scaled_dot_product_attention.
//
// PyTorch calls the device's `_fused_sdp_choice` to choose an implementation:
//   - "overrideable", PyTorch's operator for backends, if the fused kernel supports the call;
//   - "flash" under tracers, vmap and for tensors of a mesh, which know this operator. It is the
//     CPU's, or CUDA's in CUDA mode (cuda_attention.cpp);
//   - "math", the composition of plain operators, for everything else.
//
// The fused operator computes softmax(scale * Q K^T + bias) V for (batch, heads, length, head size)
// in one of two ways. If the CPU has a flash kernel for the call, it runs that one, and the results
// equal the CPU's bit for bit, layout included. With dropout, a gradient for the bias, or values of
// another head size than the queries, it composes matmul and softmax. It then computes half
// precision in float32 and draws the same random numbers as the math implementation. Dropout saves
// no mask: forward returns the seed and offset, and backward draws again.
//
// PyTorch has no derivative of the backward operator. For a graph of the backward pass, the
// autograd kernel lets autograd record the operators that backward calls. Those of the composition
// are differentiable. The flash kernel's are not, here as on the CPU.

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Operators.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "compat/dispatch_stub.h"
#include "core/device_type.h"
#include "core/registration.h"
#include "launch/typed.h"
#include "operators/composed.h"
#include "operators/random/random.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace ops = at::_ops;

// ---- the choice ---------------------------------------------------------------------------------

bool is_dense(const Tensor &tensor) {
  return !tensor.is_nested() && tensor.layout() == c10::kStrided;
}

// The fused operator has no formula for forward-mode gradients.
bool has_forward_gradient(const Tensor &tensor) {
  return tensor._fw_grad(/*level=*/0).defined();
}

// Tracers use subclasses such as fake tensors, and ask the Meta kernel for a result's metadata.
// PyTorch's Meta kernel of the fused operator returns another layout. vmap can loop over an
// operator only if all its results are tensors. The CPU's flash operator works in both cases.
bool is_transformed(const Tensor &query) {
  return query.key_set().has(c10::DispatchKey::Python) ||
         c10::impl::tls_local_dispatch_key_set().included_.has(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool is_broadcastable_mask(const Tensor &mask, const Tensor &query, const Tensor &key) {
  const auto fits = [](const c10::SymInt &size, const c10::SymInt &full) {
    return size == 1 || size == full;
  };
  const auto d = mask.dim();
  return (d == 2 || d == 4) && fits(mask.sym_size(-1), key.sym_size(-2)) &&
         fits(mask.sym_size(-2), query.sym_size(-2)) &&
         (d == 2 ||
          (fits(mask.sym_size(1), query.sym_size(1)) && fits(mask.sym_size(0), query.sym_size(0))));
}

// Sizes may be symbolic, because tracing makes the choice, too.
bool can_fuse(const Tensor &query, const Tensor &key, const Tensor &value,
              const OptionalTensor &mask) {
  if (!is_dense(query) || !is_dense(key) || !is_dense(value) ||
      (is_given(mask) && !is_dense(*mask))) {
    return false;
  }
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) {
    return false;
  }
  const auto dtype = query.scalar_type();
  const bool floating =
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
  return floating && key.scalar_type() == dtype && value.scalar_type() == dtype &&
         query.sym_numel() > 0 && key.sym_numel() > 0 && value.sym_numel() > 0 &&
         // equal numbers of heads: no grouped-query attention
         query.sym_sizes().slice(0, 2) == key.sym_sizes().slice(0, 2) &&
         key.sym_sizes().slice(0, 3) == value.sym_sizes().slice(0, 3) &&
         query.sym_size(3) == key.sym_size(3) && query.sym_size(3) == value.sym_size(3) &&
         query.sym_stride(3) == 1 && key.sym_stride(3) == 1 && value.sym_stride(3) == 1 &&
         (!is_given(mask) || is_broadcastable_mask(*mask, query, key));
}

// If the program enables any of CUDA's fused kernels, it gets this device's fused kernel.
bool is_fused_enabled() {
  const auto &context = at::globalContext();
  return context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
         context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
}

// A mask that requires a gradient selects math, as on the CPU, so that second derivatives agree.
at::SDPBackend choose(const Tensor &query, const Tensor &key, const Tensor &value,
                      const OptionalTensor &mask, double dropout) {
  const bool has_forward_gradients = has_forward_gradient(query) || has_forward_gradient(key) ||
                                     has_forward_gradient(value) ||
                                     (is_given(mask) && has_forward_gradient(*mask));
  const bool wants_mask_gradient = is_given(mask) && mask->requires_grad();
  if (is_fused_enabled() && can_fuse(query, key, value, mask) && !has_forward_gradients &&
      !wants_mask_gradient) {
    if (!is_transformed(query)) {
      return at::SDPBackend::overrideable;
    }
    // CUDA's flash operator takes no mask and returns the logsumexp in float32.
    const bool is_supported =
        !in_cuda_mode() || (!is_given(mask) && query.scalar_type() != at::kDouble);
    if (dropout == 0 && is_supported) {
      return at::SDPBackend::flash_attention;
    }
  }
  return at::globalContext().userEnabledMathSDP() ? at::SDPBackend::math : at::SDPBackend::error;
}

int64_t choose_attention(const Tensor &query, const Tensor &key, const Tensor &value,
                         const OptionalTensor &mask, double dropout, bool /*is_causal*/,
                         std::optional<double> /*scale*/, bool /*enable_gqa*/) {
  return static_cast<int64_t>(choose(query, key, value, mask, dropout));
}

// ---- attention, composed ------------------------------------------------------------------------

// The parameters of a call besides its tensors.
struct Attention {
  double dropout;
  bool is_causal;
  double scale;
  PhiloxOffset philox{openreg_philox{0, 0}}; // where dropout's random words begin

  // The scale is split between query and key, which keeps half precision in range.
  double query_scale() const { return std::copysign(key_scale(), scale); }
  double key_scale() const { return std::sqrt(std::abs(scale)); }
};

double scale_of(const Tensor &query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Half precision is computed in float32.
Tensor widened(const Tensor &tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

// Returns scale * Q K^T + bias, with -inf where the causal mask forbids attention.
Tensor scores_of(const Attention &attention, const Tensor &query, const Tensor &key,
                 const OptionalTensor &bias) {
  auto scores = at::matmul(query, key.transpose(-2, -1));
  if (is_given(bias)) {
    scores = scores + *bias;
  }
  if (attention.is_causal) {
    const auto allowed = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool));
    scores =
        scores.masked_fill(allowed.tril().logical_not(), -std::numeric_limits<double>::infinity());
  }
  return scores;
}

uint64_t dropout_words(const Tensor &weights) {
  return openreg_dropout_words(static_cast<uint64_t>(weights.numel()), grid_of(weights.device()));
}

// Returns what dropout multiplies the weights by, 0 or 1 / (1 - p): native_dropout of ones.
Tensor dropout_factor(const Attention &attention, const Tensor &weights) {
  if (attention.dropout == 1) {
    return at::zeros_like(weights);
  }
  const auto ones = at::ones(weights.sizes(), weights.options());
  auto factor = at::empty_like(ones);
  const auto kept = at::empty_like(ones, ones.options().dtype(at::kBool));
  const auto type = random_type(ones, "fused_dropout");
  const auto n = static_cast<uint64_t>(ones.numel());
  const int width = openreg_dropout_vector_width(
      type, n, reinterpret_cast<uintptr_t>(ones.const_data_ptr()), /*dense=*/true);
  const auto *x = kernel_address(ones.const_data_ptr());
  auto *result = kernel_address(factor.mutable_data_ptr());
  auto *mask = static_cast<bool *>(kernel_address(kept.mutable_data_ptr()));
  draw_on_stream(
      ones.device().index(), n,
      [=, grid = grid_of(ones.device()), offset = attention.philox, p = attention.dropout] {
        const auto philox = offset.begin();
        fill_in_shares(n, [&](openreg_share share) {
          openreg_dropout(type, n, width, x, result, mask, share, philox, grid, p);
        });
      });
  return factor;
}

struct Composed {
  Tensor output, logsumexp, weights;
};

// Reserves dropout's random words from the device's generator and stores the offset in `attention`.
Composed compose(Attention &attention, const Tensor &query, const Tensor &key, const Tensor &value,
                 const OptionalTensor &bias) {
  const auto scores = scores_of(attention, widened(query) * attention.query_scale(),
                                widened(key) * attention.key_scale(), bias);
  auto weights = at::_safe_softmax(scores, -1);
  if (attention.dropout > 0) {
    if (attention.dropout < 1 && weights.numel() > 0) {
      attention.philox =
          generator_for(std::nullopt, query.device()).reserve(dropout_words(weights));
    }
    weights = weights * dropout_factor(attention, weights);
  }
  auto output = at::matmul(weights, widened(value)).to(query.scalar_type());
  return {std::move(output), at::logsumexp(scores, -1), std::move(weights)};
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Returns the `wanted` gradients of query, key, value and bias. Uses differentiable operators only.
Gradients compose_gradients(const Attention &attention, const Tensor &grad_output,
                            const Tensor &query, const Tensor &key, const Tensor &value,
                            const Tensor &bias, const std::array<bool, 4> &wanted) {
  const auto dtype = query.scalar_type();
  const auto scaled_query = widened(query) * attention.query_scale();
  const auto scaled_key = widened(key) * attention.key_scale();
  const auto weights = at::_safe_softmax(scores_of(attention, scaled_query, scaled_key, bias), -1);
  const auto gradient = widened(grad_output);
  auto dropped = weights;
  auto grad_weights = at::matmul(gradient, widened(value).transpose(-2, -1));
  if (attention.dropout > 0) {
    const auto factor = dropout_factor(attention, weights);
    dropped = weights * factor;
    grad_weights = grad_weights * factor;
  }
  const auto grad_scores =
      at::_softmax_backward_data(grad_weights, weights, -1, weights.scalar_type());
  Gradients result;
  if (wanted[0]) {
    std::get<0>(result) = (at::matmul(grad_scores, scaled_key) * attention.query_scale()).to(dtype);
  }
  if (wanted[1]) {
    std::get<1>(result) =
        (at::matmul(scaled_query.transpose(-2, -1), grad_scores).transpose(-2, -1) *
         attention.key_scale())
            .to(dtype);
  }
  if (wanted[2]) {
    std::get<2>(result) = at::matmul(dropped.transpose(-2, -1), gradient).to(dtype);
  }
  if (wanted[3] && bias.defined()) {
    std::get<3>(result) = at::sum_to(grad_scores, bias.sizes()).to(bias.scalar_type());
  }
  return result;
}

// ---- the operators ------------------------------------------------------------------------------

// Whether the CPU's flash kernel supports the call: no dropout, one head size, and a bias that it
// can index and that requires no gradient.
bool has_flash_kernel(const Attention &attention, const Tensor &query, const Tensor &key,
                      const Tensor &value, const OptionalTensor &bias) {
  return attention.dropout == 0 && can_fuse(query, key, value, bias) &&
         !(is_given(bias) && (attention.is_causal || bias->requires_grad()));
}

void check_arguments(const Tensor &query, const Tensor &key, const Tensor &value, double dropout) {
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
              "openreg: fused attention expects query, key and value of 4 dimensions (batch, "
              "heads, length, head size), got ",
              query.dim(), ", ", key.dim(), " and ", value.dim());
  TORCH_CHECK(0 <= dropout && dropout <= 1, "openreg: dropout_p=", dropout,
              ": expected a probability from 0 to 1");
}

// Within a kernel, autocast must not change the operators' dtypes.
class WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{kDeviceKeys.autocast};
};

// Returns where dropout's words begin, as seed and offset tensors on the device, written in stream
// order. Undefined without dropout, because making two tensors takes a third of a small call's
// time.
std::pair<Tensor, Tensor> save_philox(const Attention &attention, const Tensor &like) {
  if (attention.dropout == 0) {
    return {};
  }
  auto seed = at::empty({}, like.options().dtype(at::kLong));
  auto offset = at::empty_like(seed);
  run_on_stream(like.device().index(),
                [begin = attention.philox,
                 to_seed = static_cast<uint64_t *>(kernel_address(seed.mutable_data_ptr())),
                 to_offset = static_cast<uint64_t *>(kernel_address(offset.mutable_data_ptr()))] {
                  const auto philox = begin.begin();
                  *to_seed = philox.seed;
                  *to_offset = philox.offset;
                });
  return {std::move(seed), std::move(offset)};
}

PhiloxOffset load_philox(const Tensor &seed, const Tensor &offset) {
  if (seed.is_cpu() || offset.is_cpu()) {
    return PhiloxOffset({static_cast<uint64_t>(seed.item<int64_t>()),
                         static_cast<uint64_t>(offset.item<int64_t>())});
  }
  return {static_cast<const uint64_t *>(kernel_address(seed.const_data_ptr())),
          static_cast<const uint64_t *>(kernel_address(offset.const_data_ptr())), 0};
}

// Results, by PyTorch's names:
//   output
//   logsumexp                   of each query's scores: (batch, heads, length)
//   cum_seq_q, cum_seq_k        only for packed sequences, so undefined
//   max_q, max_k                the lengths
//   philox_seed, philox_offset  where dropout's words begin; undefined without dropout
//   debug_attn_mask             the weights after dropout, if requested
std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
attention_forward(const Tensor &query, const Tensor &key, const Tensor &value,
                  const OptionalTensor &bias, double dropout, bool is_causal,
                  bool return_debug_mask, std::optional<double> scale) {
  check_arguments(query, key, value, dropout);
  Attention attention{.dropout = dropout, .is_causal = is_causal, .scale = scale_of(query, scale)};
  Composed result;
  if (!return_debug_mask && has_flash_kernel(attention, query, key, value, bias)) {
    std::tie(result.output, result.logsumexp) =
        typed<ops::_scaled_dot_product_flash_attention_for_cpu>(query, key, value, dropout,
                                                                is_causal, bias, scale);
  } else {
    const WithoutAutocast without_autocast;
    result = compose(attention, query, key, value, bias);
  }
  auto [seed, offset] = save_philox(attention, query);
  return {std::move(result.output),
          std::move(result.logsumexp),
          Tensor(),
          Tensor(),
          query.size(2),
          key.size(2),
          std::move(seed),
          std::move(offset),
          return_debug_mask ? result.weights.to(query.scalar_type()) : Tensor()};
}

Gradients attention_backward(const Tensor &grad_output, const Tensor &query, const Tensor &key,
                             const Tensor &value, const Tensor &bias, std::array<bool, 4> wanted,
                             const Tensor &output, const Tensor &logsumexp, const Tensor &,
                             const Tensor &, c10::SymInt, c10::SymInt, double dropout,
                             bool is_causal, const Tensor &philox_seed, const Tensor &philox_offset,
                             std::optional<double> scale) {
  check_arguments(query, key, value, dropout);
  WithoutAutocast without_autocast;
  Attention attention{.dropout = dropout, .is_causal = is_causal, .scale = scale_of(query, scale)};
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  if (!wanted[3] && has_flash_kernel(attention, query, key, value, mask)) {
    auto [grad_query, grad_key, grad_value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            grad_output, query, key, value, output, logsumexp, dropout, is_causal, mask, scale);
    return {std::move(grad_query), std::move(grad_key), std::move(grad_value), Tensor()};
  }
  if (dropout > 0) {
    attention.philox = load_philox(philox_seed, philox_offset);
  }
  return compose_gradients(attention, grad_output, query, key, value, bias, wanted);
}

// The autograd kernel of backward: lets autograd record the operators that backward calls.
Gradients attention_backward_autograd(const Tensor &grad_output, const Tensor &query,
                                      const Tensor &key, const Tensor &value, const Tensor &bias,
                                      std::array<bool, 4> wanted, const Tensor &output,
                                      const Tensor &logsumexp, const Tensor &cum_seq_q,
                                      const Tensor &cum_seq_k, c10::SymInt max_q, c10::SymInt max_k,
                                      double dropout, bool is_causal, const Tensor &philox_seed,
                                      const Tensor &philox_offset, std::optional<double> scale) {
  if (at::GradMode::is_enabled() && !is_transformed(query)) {
    return attention_backward(grad_output, query, key, value, bias, wanted, output, logsumexp,
                              cum_seq_q, cum_seq_k, max_q, max_k, dropout, is_causal, philox_seed,
                              philox_offset, scale);
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return ops::_scaled_dot_product_fused_attention_overrideable_backward::call(
      grad_output, query, key, value, bias, wanted, output, logsumexp, cum_seq_q, cum_seq_k, max_q,
      max_k, dropout, is_causal, philox_seed, philox_offset, scale);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  set_device_kernel(at::native::_fused_sdp_choice_stub, &choose_attention);
  library.impl("_fused_sdp_choice", &choose_attention);
  library.impl("_scaled_dot_product_fused_attention_overrideable", &attention_forward);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward);
  register_typed<ops::_scaled_dot_product_flash_attention_for_cpu,
                 ops::_scaled_dot_product_flash_attention_for_cpu_backward>(library);
}

OPENREG_LIBRARY_IMPL(aten, autograd, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward",
               &attention_backward_autograd);
}

} // namespace openreg
