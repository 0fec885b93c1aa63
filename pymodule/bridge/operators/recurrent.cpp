// The fused LSTM and GRU cells. PyTorch calls them on accelerators; on the CPU it runs a cell
// operator by operator. Here a cell is that composition as a host operator
// (launch/host_operator.h), so it is one launch as on CUDA.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

#include "core/registration.h"
#include "launch/host_operator.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Tensor add_bias(const Tensor &gates, const OptionalTensor &bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

Tensor sum_over_batch(const Tensor &gradient, bool has_bias) {
  return has_bias ? gradient.sum(0) : Tensor();
}

// The derivatives of sigmoid and tanh, computed from their results.
Tensor sigmoid_slope(const Tensor &y) {
  return (1 - y) * y;
}
Tensor tanh_slope(const Tensor &y) {
  return 1 - y * y;
}

// ---- LSTM ---------------------------------------------------------------------------------------

// Gates: input, forget, cell, output. The workspace holds them after activation.
Three lstm_on_host(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                   const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  const HostKernel kernel;
  auto gates = add_bias(input_gates, input_bias) + add_bias(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  parts[0].sigmoid_();
  parts[1].sigmoid_();
  parts[2].tanh_();
  parts[3].sigmoid_();
  auto cy = parts[1] * cx + parts[0] * parts[2];
  auto hy = parts[3] * cy.tanh();
  return {std::move(hy), std::move(cy), std::move(gates)};
}

Three lstm_backward_on_host(const OptionalTensor &grad_hy, const OptionalTensor &grad_cy,
                            const Tensor &cx, const Tensor &cy, const Tensor &workspace,
                            bool has_bias) {
  const HostKernel kernel;
  const auto parts = workspace.chunk(4, 1);
  const auto &input = parts[0], &forget = parts[1], &cell = parts[2], &output = parts[3];
  const auto activated = cy.tanh();
  const bool from_hidden = grad_hy.has_value() && grad_hy->defined();
  auto through_cell = from_hidden ? *grad_hy * output * tanh_slope(activated) : at::zeros_like(cy);
  if (grad_cy.has_value() && grad_cy->defined()) {
    through_cell = through_cell + *grad_cy;
  }
  const auto grad_output =
      from_hidden ? *grad_hy * activated * sigmoid_slope(output) : at::zeros_like(cy);
  auto grad_gates = at::cat({through_cell * cell * sigmoid_slope(input),
                             through_cell * cx * sigmoid_slope(forget),
                             through_cell * input * tanh_slope(cell), grad_output},
                            1);
  auto grad_bias = sum_over_batch(grad_gates, has_bias);
  return {std::move(grad_gates), (through_cell * forget).contiguous(), std::move(grad_bias)};
}

// ---- GRU ----------------------------------------------------------------------------------------

// Gates: reset, update, new. The workspace holds them after activation, then hx and the hidden part
// of the new gate.
Two gru_on_host(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &hx,
                const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  const HostKernel kernel;
  const auto from_input = add_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = add_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (from_input[0] + from_hidden[0]).sigmoid();
  const auto update = (from_input[1] + from_hidden[1]).sigmoid();
  const auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  auto hy = fresh + update * (hx - fresh);
  return {std::move(hy), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

Five gru_backward_on_host(const Tensor &grad_hy, const Tensor &workspace, bool has_bias) {
  const HostKernel kernel;
  const auto parts = workspace.chunk(5, 1);
  const auto &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3],
             &hidden_new = parts[4];
  const auto grad_update = grad_hy * (hx - fresh) * sigmoid_slope(update);
  const auto grad_new = grad_hy * (1 - update) * tanh_slope(fresh);
  const auto grad_reset = grad_new * hidden_new * sigmoid_slope(reset);
  auto grad_input_gates = at::cat({grad_reset, grad_update, grad_new}, 1);
  auto grad_hidden_gates = at::cat({grad_reset, grad_update, grad_new * reset}, 1);
  auto grad_input_bias = sum_over_batch(grad_input_gates, has_bias);
  auto grad_hidden_bias = sum_over_batch(grad_hidden_gates, has_bias);
  return {std::move(grad_input_gates), std::move(grad_hidden_gates), grad_hy * update,
          std::move(grad_input_bias), std::move(grad_hidden_bias)};
}

// ---- registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("_thnn_fused_lstm_cell(Tensor input_gates, Tensor hidden_gates, Tensor cx, "
              "Tensor? input_bias=None, Tensor? hidden_bias=None) -> (Tensor, Tensor, Tensor)");
  library.def("_thnn_fused_lstm_cell_backward_impl(Tensor? grad_hy, Tensor? grad_cy, Tensor cx, "
              "Tensor cy, Tensor workspace, bool has_bias) -> (Tensor, Tensor, Tensor)");
  library.def("_thnn_fused_gru_cell(Tensor input_gates, Tensor hidden_gates, Tensor hx, "
              "Tensor? input_bias=None, Tensor? hidden_bias=None) -> (Tensor, Tensor)");
  library.def("_thnn_fused_gru_cell_backward(Tensor grad_hy, Tensor workspace, bool has_bias) "
              "-> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("_thnn_fused_lstm_cell", &lstm_on_host);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_backward_on_host);
  library.impl("_thnn_fused_gru_cell", &gru_on_host);
  library.impl("_thnn_fused_gru_cell_backward", &gru_backward_on_host);
}

Three lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  return launch_host<&lstm_on_host>("openreg_host::_thnn_fused_lstm_cell", input_gates,
                                    hidden_gates, cx, input_bias, hidden_bias);
}

Three lstm_cell_backward(const OptionalTensor &grad_hy, const OptionalTensor &grad_cy,
                         const Tensor &cx, const Tensor &cy, const Tensor &workspace,
                         bool has_bias) {
  return launch_host<&lstm_backward_on_host>("openreg_host::_thnn_fused_lstm_cell_backward_impl",
                                             grad_hy, grad_cy, cx, cy, workspace, has_bias);
}

Two gru_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &hx,
             const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  return launch_host<&gru_on_host>("openreg_host::_thnn_fused_gru_cell", input_gates, hidden_gates,
                                   hx, input_bias, hidden_bias);
}

Five gru_cell_backward(const Tensor &grad_hy, const Tensor &workspace, bool has_bias) {
  return launch_host<&gru_backward_on_host>("openreg_host::_thnn_fused_gru_cell_backward", grad_hy,
                                            workspace, has_bias);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

} // namespace openreg
