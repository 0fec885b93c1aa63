#include "operators/attention/computation.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "operators/composed.h"
#include "operators/random/random.h"

namespace openreg {

namespace {

using at::Tensor;

// ---- heads --------------------------------------------------------------------------------------

int64_t sharing_heads(const Tensor &query, const Tensor &key) {
  return query.size(1) / key.size(1);
}

// Repeats each head of keys or values for the queries that share it.
Tensor for_each_query_head(const Tensor &tensor, int64_t times) {
  if (times == 1) {
    return tensor;
  }
  const auto &sizes = tensor.sizes();
  return tensor.unsqueeze(2)
      .expand({sizes[0], sizes[1], times, sizes[2], sizes[3]})
      .reshape({sizes[0], sizes[1] * times, sizes[2], sizes[3]});
}

Tensor sum_of_query_heads(const Tensor &gradient, int64_t times) {
  if (times == 1 || !gradient.defined()) {
    return gradient;
  }
  const auto &sizes = gradient.sizes();
  return gradient.reshape({sizes[0], sizes[1] / times, times, sizes[2], sizes[3]}).sum(2);
}

// ---- the CPU's flash kernel ---------------------------------------------------------------------

// It computes float16 slowly on most machines, so that is computed in float32.
Tensor for_flash_kernel(const Tensor &tensor) {
  const auto wide = tensor.scalar_type() == at::kHalf ? tensor.to(at::kFloat) : tensor;
  return wide.stride(-1) == 1 ? wide : wide.contiguous();
}

bool has_flash_kernel(const Attention &attention, const Tensor &query, const Tensor &value) {
  return attention.dropout == 0 && !(is_given(attention.bias) && attention.is_causal) &&
         query.size(3) == value.size(3) && query.numel() > 0 && value.numel() > 0;
}

std::optional<Tensor> expanded_bias(const Attention &attention, const Tensor &query,
                                    const Tensor &key) {
  if (!is_given(attention.bias)) {
    return std::nullopt;
  }
  const auto &bias = *attention.bias;
  return (bias.scalar_type() == at::kHalf ? bias.to(at::kFloat) : bias)
      .expand({query.size(0), query.size(1), query.size(2), key.size(2)});
}

// ---- the composition ----------------------------------------------------------------------------

// Half precision is computed in float32.
Tensor widened(const Tensor &tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

// The scale is split between query and key, which keeps the products small.
double key_scale(const Attention &attention) {
  return std::sqrt(std::abs(attention.scale));
}

double query_scale(const Attention &attention) {
  return std::copysign(key_scale(attention), attention.scale);
}

// Returns scale * Q K^T + bias, with -inf where attention is forbidden. Query and key are scaled.
Tensor scores_of(const Attention &attention, const Tensor &query, const Tensor &key) {
  auto scores = at::matmul(query, key.transpose(-2, -1));
  constexpr auto kForbidden = -std::numeric_limits<double>::infinity();
  if (is_given(attention.bias)) {
    const auto &bias = *attention.bias;
    scores =
        bias.scalar_type() == at::kBool ? at::where(bias, scores, kForbidden) : scores.add_(bias);
  }
  if (attention.is_causal) {
    const auto allowed = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool));
    scores.masked_fill_(allowed.tril().logical_not(), kForbidden);
  }
  return scores;
}

// Returns what dropout multiplies the weights by: 0 or 1 / (1 - p).
Tensor dropout_factor(const Attention &attention, const Tensor &weights) {
  if (attention.dropout == 1 || weights.is_meta()) {
    return at::zeros_like(weights);
  }
  constexpr openreg_grid kGrid{132, 2048}; // of the random words; the same for every device
  const auto ones = at::ones(weights.sizes(), weights.options());
  auto factor = at::empty_like(ones);
  const auto kept = at::empty_like(ones, ones.options().dtype(at::kBool));
  const auto type = random_type(ones, "fused_dropout");
  const auto n = static_cast<uint64_t>(ones.numel());
  fill_in_shares(n, [&](openreg_share share) {
    openreg_dropout(type, n, /*vector_width=*/1, ones.const_data_ptr(), factor.mutable_data_ptr(),
                    kept.mutable_data_ptr<bool>(), share, attention.philox, kGrid,
                    attention.dropout);
  });
  return factor;
}

struct Weights {
  Tensor scores, softmax, dropped;
};

Weights weights_of(const Attention &attention, const Tensor &scaled_query,
                   const Tensor &scaled_key) {
  auto scores = scores_of(attention, scaled_query, scaled_key);
  auto softmax = at::_safe_softmax(scores, -1);
  auto dropped = attention.dropout > 0 ? softmax * dropout_factor(attention, softmax) : softmax;
  return {std::move(scores), std::move(softmax), std::move(dropped)};
}

AttentionGradients compose_gradients(const Attention &attention, const Tensor &gradient,
                                     const Tensor &query, const Tensor &key, const Tensor &value,
                                     const std::array<bool, 4> &wanted) {
  const auto dtype = query.scalar_type();
  const auto scaled_query = widened(query) * query_scale(attention);
  const auto scaled_key = widened(key) * key_scale(attention);
  const auto weights = at::_safe_softmax(scores_of(attention, scaled_query, scaled_key), -1);
  const auto wide_gradient = widened(gradient);
  auto dropped = weights;
  auto of_weights = at::matmul(wide_gradient, widened(value).transpose(-2, -1));
  if (attention.dropout > 0) {
    const auto factor = dropout_factor(attention, weights);
    dropped = weights * factor;
    of_weights.mul_(factor);
  }
  const auto of_scores = at::_softmax_backward_data(of_weights, weights, -1, weights.scalar_type());
  AttentionGradients gradients;
  if (wanted[0]) {
    gradients[0] = (at::matmul(of_scores, scaled_key) * query_scale(attention)).to(dtype);
  }
  if (wanted[1]) {
    gradients[1] =
        (at::matmul(of_scores.transpose(-2, -1), scaled_query) * key_scale(attention)).to(dtype);
  }
  if (wanted[2]) {
    gradients[2] = at::matmul(dropped.transpose(-2, -1), wide_gradient).to(dtype);
  }
  if (wanted[3] && is_given(attention.bias)) {
    gradients[3] = at::sum_to(of_scores, attention.bias->sizes()).to(attention.bias->scalar_type());
  }
  return gradients;
}

} // namespace

double scale_of(const Tensor &query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

Attended attend(const Attention &attention, const Tensor &query, const Tensor &key,
                const Tensor &value) {
  const auto times = sharing_heads(query, key);
  const auto keys = for_each_query_head(key, times), values = for_each_query_head(value, times);
  if (has_flash_kernel(attention, query, value)) {
    auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        for_flash_kernel(query), for_flash_kernel(keys), for_flash_kernel(values), /*dropout_p=*/0,
        attention.is_causal, expanded_bias(attention, query, key), attention.scale);
    return {output.to(query.scalar_type()), std::move(logsumexp)};
  }
  const auto weights = weights_of(attention, widened(query) * query_scale(attention),
                                  widened(keys) * key_scale(attention));
  return {at::matmul(weights.dropped, widened(values)).to(query.scalar_type()),
          at::logsumexp(weights.scores, -1)};
}

Tensor attention_weights(const Attention &attention, const Tensor &query, const Tensor &key) {
  const auto keys = for_each_query_head(key, sharing_heads(query, key));
  const auto weights = weights_of(attention, widened(query) * query_scale(attention),
                                  widened(keys) * key_scale(attention));
  return at::where(weights.dropped == 0, -weights.softmax, weights.dropped).to(query.scalar_type());
}

AttentionGradients attention_gradients(const Attention &attention, const Tensor &gradient,
                                       const Tensor &query, const Tensor &key, const Tensor &value,
                                       const Attended &attended,
                                       const std::array<bool, 4> &wanted) {
  const auto times = sharing_heads(query, key);
  const auto keys = for_each_query_head(key, times), values = for_each_query_head(value, times);
  AttentionGradients gradients;
  if (!wanted[3] && has_flash_kernel(attention, query, value)) {
    std::tie(gradients[0], gradients[1], gradients[2]) =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            for_flash_kernel(gradient), for_flash_kernel(query), for_flash_kernel(keys),
            for_flash_kernel(values), for_flash_kernel(attended.output), attended.logsumexp,
            /*dropout_p=*/0, attention.is_causal, expanded_bias(attention, query, key),
            attention.scale);
    for (size_t i = 0; i < 3; ++i) {
      gradients[i] = gradients[i].to(query.scalar_type());
    }
  } else {
    gradients = compose_gradients(attention, gradient, query, keys, values, wanted);
  }
  gradients[1] = sum_of_query_heads(gradients[1], times);
  gradients[2] = sum_of_query_heads(gradients[2], times);
  return gradients;
}

Tensor with_padded_rows(const Tensor &gradient) {
  constexpr int64_t kAlignment = 16;
  auto sizes = gradient.sizes().vec();
  const auto row = sizes.back();
  sizes.back() = (row + kAlignment - 1) / kAlignment * kAlignment;
  return at::empty(sizes, gradient.options()).narrow(-1, 0, row).copy_(gradient);
}

} // namespace openreg
