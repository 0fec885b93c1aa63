// LSTM by whole layers. On CPU tensors PyTorch computes a float32 layer by one oneDNN kernel,
// elsewhere step by step. This launches the same oneDNN kernel, with the same derivative.
//
// With memory plans an LSTM runs step by step, as in PyTorch's CUDA build without cuDNN: CUDA has
// no kernel like oneDNN's, so no plan says what it would take. With autocast it does, too, since
// the result has the lower precision on CUDA.

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "compat/native_kernels.h"
#include "core/registration.h"
#include "core/status.h"
#include "launch/memory_plan.h"

namespace openreg {

namespace {

using at::Tensor;
using at::TensorList;

constexpr int64_t kModeLstm = 2; // mkldnn_rnn_layer's mode, in oneDNN's numbering

bool takes_whole_layers(const Tensor &input, TensorList hx, TensorList params) {
  const bool is_in_one_place = std::ranges::all_of(
      params, [&](const Tensor &each) { return each.device() == input.device(); });
  const bool has_projections = hx.size() == 2 && hx[0].size(2) != hx[1].size(2);
  return at::globalContext().userEnabledMkldnn() && input.scalar_type() == at::kFloat &&
         input.numel() > 0 && is_in_one_place && !has_projections && !has_planner() &&
         !at::autocast::is_autocast_enabled(kDeviceType);
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor &input, TensorList hx, TensorList params,
                                        bool has_biases, int64_t num_layers, double dropout,
                                        bool train, bool bidirectional, bool batch_first) {
  if (!takes_whole_layers(input, hx, params)) {
    return native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                        batch_first);
  }
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const int64_t directions = bidirectional ? 2 : 1;
  const size_t weights = has_biases ? 4 : 2; // per layer and direction
  auto layer_input = (batch_first ? input.transpose(0, 1) : input).contiguous();
  const auto h0 = hx[0].contiguous(), c0 = hx[1].contiguous();
  const auto hidden_size = h0.size(2);
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const auto index = layer * directions + direction;
      const auto *weight = params.data() + static_cast<size_t>(index) * weights;
      const auto no_bias = has_biases ? Tensor() : at::zeros_like(weight[0]);
      auto [output, h, c, workspace] = at::mkldnn_rnn_layer(
          layer_input, weight[0], weight[1], has_biases ? weight[2] : no_bias,
          has_biases ? weight[3] : no_bias, h0.select(0, index), c0.select(0, index),
          /*reverse=*/direction == 1, /*batch_sizes=*/{}, kModeLstm, hidden_size, num_layers,
          has_biases, bidirectional, batch_first, train);
      outputs.push_back(output);
      hy.push_back(h);
      cy.push_back(c);
    }
    layer_input = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (dropout != 0 && train && layer + 1 < num_layers) {
      layer_input = at::dropout(layer_input, dropout, /*train=*/true);
    }
  }
  return {batch_first ? layer_input.transpose(0, 1) : layer_input, at::stack(hy), at::stack(cy)};
}

} // namespace

// It calls other operators, which autograd differentiates, so the same kernel serves both keys.
OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("lstm.input", &lstm);
}
OPENREG_LIBRARY_IMPL(aten, autograd, library) {
  library.impl("lstm.input", &lstm);
}

} // namespace openreg
