"""The fused cells of LSTM and GRU, which take their results only.

Source: ATen/native/cuda/RNN.cu.
"""

from .call import Call, Tensor, plans

GRU_STATES = 5  # of the workspace, for each hidden number


@plans("_thnn_fused_lstm_cell")
def lstm(
    call: Call,
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> list[int]:
    """The workspace before both states."""
    call.result(input_gates.dtype, input_gates.sizes)
    for _ in range(2):
        call.result(cx.dtype, cx.sizes)
    return [1, 2, 0]


@plans("_thnn_fused_lstm_cell_backward_impl")
def lstm_backward(
    call: Call,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> None:
    """The gradients of gates, state and bias."""
    call.result(workspace.dtype, workspace.sizes)
    call.result(cx.dtype, cx.sizes)
    if has_bias:
        call.result(workspace.dtype, workspace.sizes[1:])


@plans("_thnn_fused_gru_cell")
def gru(
    call: Call,
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> list[int]:
    """The workspace before the state."""
    call.result(hx.dtype, (hx.sizes[0], hx.sizes[1] * GRU_STATES))
    call.result(hx.dtype, hx.sizes)
    return [1, 0]


@plans("_thnn_fused_gru_cell_backward")
def gru_backward(call: Call, grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> None:
    """The gradients of both gates, of the state, and of both biases."""
    gates = (grad_hy.sizes[0], 3 * grad_hy.sizes[1])
    for _ in range(2):
        call.result(workspace.dtype, gates)
    call.result(grad_hy.dtype, grad_hy.sizes)
    for _ in range(2 if has_bias else 0):
        call.result(workspace.dtype, gates[1:])
