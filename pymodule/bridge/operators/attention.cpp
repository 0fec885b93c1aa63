// Fused attention: what scaled_dot_product_attention becomes on a device.
//
// PyTorch asks `_fused_sdp_choice` of the device which implementation serves a call. For one that
// the fused kernel can do the answer is "overrideable", the operator that PyTorch leaves to
// backends; under tracers, vmap and tensors of a mesh it is "flash", the CPU's operator or in CUDA
// mode CUDA's (cuda_attention.cpp), which they know; else "math", the composition of plain
// operators.
//
// The fused operator computes softmax(scale * Q K^T + bias) V for (batch, heads, length, head size)
// in one of two ways. Where the CPU has a flash kernel for the call, that one runs, and results are
// the CPU's to the bit, layout included. With dropout, a gradient for the bias, or values of
// another head size than queries, it is composed of matmul and softmax, half precision computed in
// float32 like the math implementation; it draws the same random numbers as that one, too. Dropout
// keeps no mask: forward returns seed and offset, and backward draws again.
//
// PyTorch has no derivative of backward. Where a graph of the backward pass is wanted, the
// autograd kernel lets autograd record the operators that backward is made of: those of
// the composition are differentiable, the flash kernel's is not, here as on the CPU.

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

// There is no formula for forward gradients.
bool has_forward_gradient(const Tensor &tensor) {
  return tensor._fw_grad(/*level=*/0).defined();
}

// Tracers, which put subclasses such as fake tensors in a tensor's place, ask the Meta kernel what
// a result looks like, and PyTorch's for the fused operator tells of another layout. vmap can loop
// over an operator only if all its results are tensors. The CPU's flash operator suits both.
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

// Sizes may be symbols: the choice is made when a program is traced, too.
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
         // else heads are shared (GQA)
         query.sym_sizes().slice(0, 2) == key.sym_sizes().slice(0, 2) &&
         key.sym_sizes().slice(0, 3) == value.sym_sizes().slice(0, 3) &&
         query.sym_size(3) == key.sym_size(3) && query.sym_size(3) == value.sym_size(3) &&
         query.sym_stride(3) == 1 && key.sym_stride(3) == 1 && value.sym_stride(3) == 1 &&
         (!is_given(mask) || is_broadcastable_mask(*mask, query, key));
}

// A program that asks for any of CUDA's fused kernels gets the one that this device has.
bool is_fused_enabled() {
  const auto &context = at::globalContext();
  return context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
         context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
}

// A mask that wants a gradient takes math, as on the CPU: gradients of gradients are the same, too.
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
    // CUDA's flash operator takes no mask, and gives the logsumexp in float32.
    const bool is_taken =
        !in_cuda_mode() || (!is_given(mask) && query.scalar_type() != at::kDouble);
    if (dropout == 0 && is_taken) {
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

// How a call attends, beside its tensors.
struct Attention {
  double dropout;
  bool is_causal;
  double scale;
  openreg_philox philox; // where its dropout starts in the generator's stream

  // The scale is split between query and key, which keeps half precision in range.
  double query_scale() const { return std::copysign(key_scale(), scale); }
  double key_scale() const { return std::sqrt(std::abs(scale)); }
};

double scale_of(const Tensor &query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// What half precision is computed in.
Tensor widened(const Tensor &tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

// scale * Q K^T + bias, -inf where a query may not look.
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

// What dropout multiplies the weights by, 0 or 1 / (1 - p): what native_dropout makes of ones.
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
      [=, grid = grid_of(ones.device()), philox = attention.philox, p = attention.dropout] {
        fill_in_shares(n, [&](openreg_share share) {
          openreg_dropout(type, n, width, x, result, mask, share, philox, grid, p);
        });
      });
  return factor;
}

struct Composed {
  Tensor output, logsumexp, weights;
};

// Takes the words of its dropout from the device's generator, and says where they start.
Composed compose(Attention &attention, const Tensor &query, const Tensor &key, const Tensor &value,
                 const OptionalTensor &bias) {
  const auto scores = scores_of(attention, widened(query) * attention.query_scale(),
                                widened(key) * attention.key_scale(), bias);
  auto weights = at::_safe_softmax(scores, -1);
  if (attention.dropout > 0) {
    if (attention.dropout < 1 && weights.numel() > 0) {
      attention.philox = generator_for(std::nullopt, query.device()).take(dropout_words(weights));
    }
    weights = weights * dropout_factor(attention, weights);
  }
  auto output = at::matmul(weights, widened(value)).to(query.scalar_type());
  return {std::move(output), at::logsumexp(scores, -1), std::move(weights)};
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Of query, key, value and bias, where `wanted`. Made of differentiable operators.
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

// The CPU's flash kernel: no dropout, one head size, a bias that it can index and that wants no
// gradient.
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
              ": expected a probability, from 0 to 1");
}

// Inside a kernel the operators' dtypes are settled: autocast must not choose again.
class WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{kDeviceKeys.autocast};
};

// Nothing without dropout: to make two tensors for every call takes a third of a small one's time.
Tensor device_number(uint64_t number, const Tensor &like, const Attention &attention) {
  return attention.dropout > 0
             ? at::full({}, static_cast<int64_t>(number), like.options().dtype(at::kLong))
             : Tensor();
}

uint64_t number_of(const Tensor &tensor) {
  return static_cast<uint64_t>(tensor.item<int64_t>());
}

// Results, by PyTorch's names: output; logsumexp of each query's scores (batch, heads, length);
// cum_seq_q and cum_seq_k, which only packed sequences have; max_q and max_k, the lengths;
// philox_seed and philox_offset, where dropout started (undefined without); debug_attn_mask, the
// weights after dropout, if asked for.
std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
attention_forward(const Tensor &query, const Tensor &key, const Tensor &value,
                  const OptionalTensor &bias, double dropout, bool is_causal,
                  bool return_debug_mask, std::optional<double> scale) {
  check_arguments(query, key, value, dropout);
  Attention attention{dropout, is_causal, scale_of(query, scale), {0, 0}};
  Composed result;
  if (!return_debug_mask && has_flash_kernel(attention, query, key, value, bias)) {
    std::tie(result.output, result.logsumexp) =
        typed<ops::_scaled_dot_product_flash_attention_for_cpu>(query, key, value, dropout,
                                                                is_causal, bias, scale);
  } else {
    const WithoutAutocast without_autocast;
    result = compose(attention, query, key, value, bias);
  }
  return {std::move(result.output),
          std::move(result.logsumexp),
          Tensor(),
          Tensor(),
          query.size(2),
          key.size(2),
          device_number(attention.philox.seed, query, attention),
          device_number(attention.philox.offset, query, attention),
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
  Attention attention{dropout, is_causal, scale_of(query, scale), {0, 0}};
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  if (!wanted[3] && has_flash_kernel(attention, query, key, value, mask)) {
    auto [grad_query, grad_key, grad_value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            grad_output, query, key, value, output, logsumexp, dropout, is_causal, mask, scale);
    return {std::move(grad_query), std::move(grad_key), std::move(grad_value), Tensor()};
  }
  if (dropout > 0) {
    attention.philox = {number_of(philox_seed), number_of(philox_offset)};
  }
  return compose_gradients(attention, grad_output, query, key, value, bias, wanted);
}

// The autograd kernel of backward: autograd records what it is made of.
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
