// The fused LSTM and GRU cells. PyTorch calls them on accelerators; on the CPU it runs a cell
// operator by operator. Here a cell is that composition in one launch.
//
// Each cell is a type with the schema of PyTorch's operator, for a typed launch (launch/typed.h).
// Its `redispatch` computes the cell on CPU tensors. A graph captures the launches of the single
// operators instead.

#include <ATen/Operators.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "core/registration.h"
#include "launch/typed.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

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

// Gates: input, forget, cell, output. The workspace holds them after activation.
struct LstmCell : at::_ops::_thnn_fused_lstm_cell {
  static constexpr bool kRunsItself = true, kIsComposed = true;
  static std::tuple<Tensor, Tensor, Tensor> redispatch(c10::DispatchKeySet,
                                                       const Tensor &input_gates,
                                                       const Tensor &hidden_gates, const Tensor &cx,
                                                       const OptionalTensor &input_bias,
                                                       const OptionalTensor &hidden_bias) {
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
};

struct LstmCellBackward : at::_ops::_thnn_fused_lstm_cell_backward_impl {
  static constexpr bool kRunsItself = true, kIsComposed = true;
  static std::tuple<Tensor, Tensor, Tensor>
  redispatch(c10::DispatchKeySet, const OptionalTensor &grad_hy, const OptionalTensor &grad_cy,
             const Tensor &cx, const Tensor &cy, const Tensor &workspace, bool has_bias) {
    const auto parts = workspace.chunk(4, 1);
    const auto &input = parts[0], &forget = parts[1], &cell = parts[2], &output = parts[3];
    const auto activated = cy.tanh();
    const bool from_hidden = grad_hy.has_value() && grad_hy->defined();
    auto through_cell =
        from_hidden ? *grad_hy * output * tanh_slope(activated) : at::zeros_like(cy);
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
    return {std::move(grad_gates), through_cell * forget, std::move(grad_bias)};
  }
};

// Gates: reset, update, new. The workspace holds them after activation, then hx and the hidden part
// of the new gate.
struct GruCell : at::_ops::_thnn_fused_gru_cell {
  static constexpr bool kRunsItself = true, kIsComposed = true;
  static std::tuple<Tensor, Tensor> redispatch(c10::DispatchKeySet, const Tensor &input_gates,
                                               const Tensor &hidden_gates, const Tensor &hx,
                                               const OptionalTensor &input_bias,
                                               const OptionalTensor &hidden_bias) {
    const auto from_input = add_bias(input_gates, input_bias).chunk(3, 1);
    const auto from_hidden = add_bias(hidden_gates, hidden_bias).chunk(3, 1);
    const auto reset = (from_input[0] + from_hidden[0]).sigmoid();
    const auto update = (from_input[1] + from_hidden[1]).sigmoid();
    const auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
    auto hy = fresh + update * (hx - fresh);
    return {std::move(hy), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
  }
};

struct GruCellBackward : at::_ops::_thnn_fused_gru_cell_backward {
  static constexpr bool kRunsItself = true, kIsComposed = true;
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
  redispatch(c10::DispatchKeySet, const Tensor &grad_hy, const Tensor &workspace, bool has_bias) {
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
};

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  register_typed<LstmCell, LstmCellBackward, GruCell, GruCellBackward>(library);
}

} // namespace openreg
