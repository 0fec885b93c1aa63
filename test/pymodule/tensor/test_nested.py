"""Nested tensors on a device, strided and jagged, compute what they compute on the CPU."""

import io

import pytest
import torch
import torch.nn.functional as F

from device import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")

LAYOUTS = [torch.strided, torch.jagged]


def parts(device="cpu", width=4):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, width, generator=generator).to(device) for n in (2, 3, 1)]


def nested(device="cpu", layout=torch.strided, width=4):
    return torch.nested.nested_tensor(parts(width=width), device=device, layout=layout)


def assert_same(actual, expected, device=f"{DEVICE}:0"):
    assert actual.is_nested and actual.device == torch.device(device)
    assert actual.layout == expected.layout
    for ours, theirs in zip(actual.unbind(), expected.unbind(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nested_tensor_is_made_on_a_device(layout):
    assert_same(nested(f"{DEVICE}:1", layout), nested(layout=layout), f"{DEVICE}:1")
    of_device_parts = torch.nested.as_nested_tensor(parts(f"{DEVICE}:1"), layout=layout)
    assert_same(of_device_parts, nested(layout=layout), f"{DEVICE}:1")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nested_tensor_moves(layout):
    host = nested(layout=layout)
    there = host.to(DEVICE)
    assert_same(there, host)
    assert_same(there.to(f"{DEVICE}:1"), host, f"{DEVICE}:1")
    assert_same(there.cpu(), host, "cpu")
    assert_same(there.clone(), host)
    assert_same(there.double(), host.double())


def test_sizes_are_known_on_the_host():
    tensor = nested(DEVICE)
    assert tensor._nested_tensor_size().is_cpu
    assert tensor._nested_tensor_size().tolist() == [[2, 4], [3, 4], [1, 4]]
    assert (tensor.dim(), tensor.size(0), tensor.size(2), tensor.numel()) == (3, 3, 4, 24)
    with pytest.raises(RuntimeError, match="dimension 1 is irregular"):
        tensor.size(1)


def test_parts_are_views():
    tensor = nested(DEVICE)
    tensor.unbind()[1].zero_()
    tensor[2].fill_(7)
    assert tensor.unbind()[1].count_nonzero() == 0
    assert tensor.unbind()[2].tolist() == [[7.0] * 4]


def test_parts_outlive_the_whole():
    first = nested(DEVICE).unbind()[0]
    over = torch.full((64,), 9.0, device=DEVICE)
    assert torch.equal(first.cpu(), parts()[0]) and over.device.type == DEVICE


UNARY = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "silu": F.silu,
    "abs": torch.abs,
    "neg": torch.neg,
    "cos": torch.cos,
    "add": lambda t: t + t,
    "sub": lambda t: t - t,
    "mul": lambda t: t * t,
    "scale": lambda t: t * 2,
    "div": lambda t: t / 2,
    "softmax": lambda t: torch.softmax(t, -1),
    "layer_norm": lambda t: F.layer_norm(t, (4,), torch.ones(4).to(t), torch.ones(4).to(t)),
    "ones_like": torch.ones_like,
    "unsqueeze": lambda t: t.unsqueeze(1),
    "sum": lambda t: t.sum(-1, keepdim=True),
    "linear": lambda t: F.linear(t, torch.arange(8.0, device=t.device).view(2, 4)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", UNARY)
def test_operators_agree_with_the_cpu(name, layout):
    function = UNARY[name]
    assert_same(function(nested(DEVICE, layout)), function(nested(layout=layout)))


STRIDED = {
    "transpose": lambda t: t.transpose(1, 2),
    "matmul": lambda t: torch.matmul(t, t.transpose(1, 2)),
    "view": lambda t: t.view(3, -1, 2, 2),
    "cat": lambda t: torch.cat([t, t]),
    "bmm": lambda t: torch.bmm(t.transpose(1, 2), t),
    "masked_fill": lambda t: t.masked_fill(t > 0, 5.0),
}


@pytest.mark.parametrize("name", STRIDED)
def test_operators_of_the_strided_layout_agree_with_the_cpu(name):
    assert_same(STRIDED[name](nested(DEVICE)), STRIDED[name](nested()))


def test_in_place_operators_agree_with_the_cpu():
    def change(tensor):
        tensor.add_(tensor)
        tensor.relu_()
        tensor.mul_(3)
        return tensor

    assert_same(change(nested(DEVICE)), change(nested()))
    assert_same(nested(DEVICE).zero_().copy_(nested()), nested())
    assert_same(nested(DEVICE).fill_(2.0), nested().fill_(2.0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_agrees_with_the_cpu(layout):
    actual = nested(DEVICE, layout).to_padded_tensor(-1.0)
    assert actual.device == torch.device(f"{DEVICE}:0")
    torch.testing.assert_close(actual.cpu(), nested(layout=layout).to_padded_tensor(-1.0))


def test_padded_tensors_are_nested_again():
    tensor = nested(DEVICE)
    padded = tensor.to_padded_tensor(0.0)
    assert_same(torch._nested_from_padded(padded, tensor._nested_tensor_size()), nested())
    assert_same(torch._nested_from_padded_and_nested_example(padded, tensor), nested())


def test_mask_selects_the_parts():
    values = torch.arange(24.0).view(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    actual = torch._nested_tensor_from_mask(values.to(DEVICE), mask.to(DEVICE))
    assert_same(actual, torch._nested_tensor_from_mask(values, mask))


def test_random_numbers_fill_the_buffer():
    torch.manual_seed(0)
    tensor = torch.randn_like(nested(DEVICE))
    torch.manual_seed(0)
    expected = torch.randn(24, device=DEVICE)
    assert torch.equal(torch.cat([part.flatten() for part in tensor.unbind()]), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dropout_keeps_or_doubles(layout):
    actual = F.dropout(nested(DEVICE, layout), 0.5)
    for ours, theirs in zip(actual.unbind(), parts(), strict=True):
        kept = ours.cpu() != 0
        assert torch.equal(ours.cpu()[kept], 2 * theirs[kept])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_agree_with_the_cpu(layout):
    def gradients(device):
        leaves = [part.requires_grad_() for part in parts(device)]
        weight = torch.arange(20.0, device=device).view(5, 4).mul_(0.1).requires_grad_()
        tensor = F.linear(torch.nested.as_nested_tensor(leaves, layout=layout).relu(), weight)
        torch.softmax(tensor, -1).to_padded_tensor(0.0).square().sum().backward()
        return [leaf.grad for leaf in (*leaves, weight)]

    for ours, theirs in zip(gradients(DEVICE), gradients("cpu"), strict=True):
        assert ours.device == torch.device(f"{DEVICE}:0")
        torch.testing.assert_close(ours.cpu(), theirs)


def test_jagged_attention_agrees_with_the_cpu():
    def attend(device):
        tensor = nested(device, torch.jagged, width=8).requires_grad_()
        heads = tensor.unflatten(-1, (2, 4)).transpose(1, 2)
        result = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
        result.values().square().sum().backward()
        return result.detach(), tensor.grad

    for ours, theirs in zip(attend(DEVICE), attend("cpu"), strict=True):
        assert_same(ours, theirs)


def test_strided_attention_agrees_with_the_cpu():
    def attend(device):
        heads = nested(device, width=8).view(3, -1, 2, 4).transpose(1, 2).contiguous()
        return F.scaled_dot_product_attention(heads, heads, heads)

    assert_same(attend(DEVICE), attend("cpu"))


def test_transformer_accepts_nested_sequences():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()
    with torch.inference_mode():
        expected = layer(nested())
        assert_same(layer.to(DEVICE)(nested(DEVICE)), expected)


def test_offsets_of_the_jagged_layout_are_on_the_device():
    tensor = nested(f"{DEVICE}:1", torch.jagged)
    assert tensor.offsets().device == tensor.values().device == torch.device(f"{DEVICE}:1")
    assert tensor.offsets().tolist() == [0, 2, 5, 6]


def test_jagged_tensor_is_a_view_of_its_values():
    values, offsets = torch.cat(parts(DEVICE)), torch.tensor([0, 2, 5, 6], device=DEVICE)
    tensor = torch.nested.nested_tensor_from_jagged(values, offsets)
    assert_same(tensor, nested(layout=torch.jagged))
    tensor.unbind()[0].zero_()
    assert values[:2].count_nonzero() == 0


def test_jagged_tensor_compiles():
    function = torch.compile(lambda t: (t * 2).sin(), backend="aot_eager")
    actual = function(nested(DEVICE, torch.jagged))
    assert_same(actual, (nested(layout=torch.jagged) * 2).sin())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("location", [f"{DEVICE}:0", f"{DEVICE}:1", "cpu"])
def test_nested_tensor_is_saved_and_loaded(layout, location):
    buffer = io.BytesIO()
    torch.save(nested(DEVICE, layout), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location=location, weights_only=layout == torch.strided)
    assert_same(loaded, nested(layout=layout), location)


def test_nested_tensors_of_two_devices_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        nested(f"{DEVICE}:0") + nested(f"{DEVICE}:1")


@pytest.mark.parametrize("view", [lambda x: x.transpose(-1, -2), lambda x: x.view(3, -1, 2, 2)])
def test_views_of_ordinary_tensors_in_inference_mode_are_ordinary(view):
    host, device = nested(), nested(DEVICE)
    with torch.inference_mode():
        ours, theirs = view(device), view(host)
        assert view(nested(DEVICE)).is_inference()
    assert not theirs.is_inference() and not ours.is_inference()
    assert_same(ours, theirs)
