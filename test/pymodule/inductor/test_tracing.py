"""Recurrent layers and transformers, traced with their derivatives."""

import copy

import pytest
import torch
from torch import nn

from device import DEVICE

RECURRENT = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


@pytest.fixture(autouse=True)
def recurrent_layers_are_traced():
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def gradients(function, layer, inputs):
    result = function(inputs)[0]
    return result, *torch.autograd.grad(result.square().sum(), [inputs, *layer.parameters()])


@pytest.mark.parametrize(
    ("kind", "backend"), [*((each, "aot_eager") for each in RECURRENT), ("LSTM", "inductor")]
)
def test_recurrent_layer_in_training(kind, backend):
    torch.manual_seed(0)
    layer = RECURRENT[kind](4, 5, batch_first=True)
    x = torch.randn(2, 3, 4)
    expected = gradients(layer, layer, x.requires_grad_())
    moved = copy.deepcopy(layer).to(DEVICE)
    compiled = torch.compile(moved.forward, backend=backend, fullgraph=True)
    got = gradients(compiled, moved, x.detach().to(DEVICE).requires_grad_())
    for result, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(result.cpu(), wanted)


def operators_of(function, *arguments):
    """Return the operators of the graph that a backend would compile."""
    seen = []

    def compiler(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    from torch._dynamo.backends.common import aot_autograd

    torch.compile(function, backend=aot_autograd(fw_compiler=compiler), fullgraph=True)(*arguments)
    return seen


def test_lstm_without_gradients_is_traced_by_layers():
    layer = nn.LSTM(4, 5, num_layers=2).to(DEVICE)
    x = torch.randn(3, 2, 4, device=DEVICE)
    with torch.no_grad():
        operators = operators_of(layer, x)
    assert operators.count("aten.mkldnn_rnn_layer.default") == 2


def test_lstm_with_gradients_is_traced_by_steps():
    layer = nn.LSTM(4, 5).to(DEVICE)
    operators = operators_of(layer, torch.randn(3, 2, 4, device=DEVICE))
    assert "aten.mkldnn_rnn_layer.default" not in operators
    assert operators.count("aten.tanh.default") == 2 * 3


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [("aot_eager", torch.float32), ("aot_eager", torch.bfloat16), ("inductor", torch.float32)],
)
def test_compiled_backward_of_fused_attention(backend, dtype):
    """With float32 CUDA takes memory-efficient attention, with bfloat16 flash attention."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 16, dropout=0.0, batch_first=True).to(DEVICE, dtype)
    x = torch.randn(2, 7, 32, device=DEVICE, dtype=dtype)
    layer(x).square().sum().backward()
    expected = [each.grad.clone() for each in layer.parameters()]
    layer.zero_grad()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
        layer(x).square().sum().backward()
    for parameter, wanted in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted)
