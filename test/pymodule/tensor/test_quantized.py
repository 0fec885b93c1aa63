"""Quantized tensors have the same integers, scales and zero points on a device as on the CPU."""

import copy
import gc
import io

import pytest
import torch

from device import DEVICE

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions:UserWarning"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
]

SCALES = torch.tensor([0.1, 0.2, 0.3])
ZERO_POINTS = torch.tensor([0, 1, 2])


def values(device="cpu"):
    return torch.linspace(-1.5, 1.5, 12).reshape(3, 4).to(device)


def per_tensor(device="cpu", dtype=torch.quint8):
    return torch.quantize_per_tensor(values(device), 0.1, 3, dtype)


def per_channel(device="cpu", dtype=torch.qint8):
    scales = SCALES.to(device, torch.float64)
    return torch.quantize_per_channel(values(device), scales, ZERO_POINTS.to(device), 0, dtype)


def per_channel_with_float_parameters(device="cpu"):
    zero_points = ZERO_POINTS.to(device, torch.float32)
    return torch.quantize_per_channel(
        values(device), SCALES.to(device), zero_points, 0, torch.quint8
    )


KINDS = [per_tensor, per_channel, per_channel_with_float_parameters]
CLONED = KINDS[:2]  # PyTorch cannot clone the others


def assert_same(actual, expected, device=f"{DEVICE}:0"):
    """Assert that quantized tensors are equal and that one is wholly on the device."""
    assert actual.device == torch.device(device)
    assert actual.qscheme() == expected.qscheme() and actual.dtype == expected.dtype
    assert torch.equal(actual.int_repr().cpu(), expected.int_repr())
    assert torch.equal(actual.dequantize().cpu(), expected.dequantize())
    if expected.qscheme() == torch.per_tensor_affine:
        assert actual.q_scale() == expected.q_scale()
        assert actual.q_zero_point() == expected.q_zero_point()
    else:
        scales, zero_points = actual.q_per_channel_scales(), actual.q_per_channel_zero_points()
        assert scales.device == zero_points.device == torch.device(device)
        assert torch.equal(scales.cpu(), expected.q_per_channel_scales())
        assert torch.equal(zero_points.cpu(), expected.q_per_channel_zero_points())
        assert actual.q_per_channel_axis() == expected.q_per_channel_axis()


@pytest.mark.parametrize("make", KINDS)
def test_quantizing_agrees_with_the_cpu(make):
    quantized = make(f"{DEVICE}:1")
    assert quantized.is_quantized and quantized.device.type == DEVICE
    assert_same(quantized, make(), f"{DEVICE}:1")


@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32])
def test_every_quantized_dtype_is_made(dtype):
    assert_same(per_tensor(DEVICE, dtype), per_tensor("cpu", dtype))


@pytest.mark.parametrize("make", KINDS)
def test_quantized_tensor_moves_with_its_parameters(make):
    host = make()
    for there in (host.to(DEVICE), host.to(DEVICE)):
        assert_same(there, host)
        assert_same(there.to(f"{DEVICE}:1"), host, f"{DEVICE}:1")
        assert_same(there.cpu(), host, "cpu")


@pytest.mark.parametrize("make", CLONED)
def test_quantized_tensor_is_copied(make):
    tensor = make(f"{DEVICE}:1")
    assert_same(tensor.clone(), make(), f"{DEVICE}:1")
    assert_same(copy.deepcopy(tensor), make(), f"{DEVICE}:1")
    assert_same(torch.empty_like(tensor).copy_(make()), make(), f"{DEVICE}:1")


@pytest.mark.parametrize("make", CLONED)
def test_numbers_are_quantized_as_they_are_copied_in(make):
    expected = make().clone().copy_(values() / 2)
    assert_same(make(DEVICE).copy_(values(DEVICE) / 2), expected)


def test_quantized_numbers_are_not_copied_into_others():
    with pytest.raises(RuntimeError, match="please use dequantize"):
        values(DEVICE).copy_(per_tensor(DEVICE))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("location", [f"{DEVICE}:0", f"{DEVICE}:1", "cpu"])
def test_quantized_tensor_is_saved_and_loaded(make, location):
    buffer = io.BytesIO()
    torch.save(make(f"{DEVICE}:0"), buffer)
    buffer.seek(0)
    assert_same(torch.load(buffer, map_location=location), make(), location)


def test_quantized_tensor_prints_as_on_the_cpu():
    text = repr(per_tensor(DEVICE)).replace(f", device='{DEVICE}:0'", "")
    assert "".join(text.split()) == "".join(repr(per_tensor()).split())


def test_element_is_dequantized():
    assert per_tensor(DEVICE)[1, 2].item() == per_tensor()[1, 2].item()


def test_views_share_the_integers():
    tensor = per_tensor(DEVICE)
    row, column, flat = tensor[1], tensor.t()[1], tensor.view(12)
    tensor.fill_(0.5)
    for view in (row, column, flat):
        assert torch.equal(view.dequantize(), torch.full_like(view.dequantize(), 0.5))


def test_quantized_tensor_grows():
    tensor = per_tensor(DEVICE)
    tensor.resize_(5, 4)
    assert tensor.shape == (5, 4)
    assert torch.equal(tensor[:3].int_repr().cpu(), per_tensor().int_repr())


@pytest.mark.parametrize(
    "operator",
    [
        torch.relu,
        torch.sigmoid,
        torch.tanh,
        lambda q: torch.cat([q, q]),
        lambda q: q.mean(1),
        lambda q: q.sort(descending=True)[0],
        lambda q: q.max(1)[0],
        lambda q: torch.nn.functional.max_pool1d(q.unsqueeze(0), 2),
        lambda q: torch.nn.functional.interpolate(q.view(1, 1, 3, 4), scale_factor=2),
        lambda q: torch.ops.quantized.add(q, q, 0.2, 1),
        lambda q: q.clamp(-0.5, 0.5),
        lambda q: q.flip(0),
    ],
)
def test_quantized_operators_agree_with_the_cpu(operator):
    assert_same(operator(per_tensor(DEVICE)), operator(per_tensor()))


def test_comparison_of_quantized_tensors():
    tensor = per_tensor(DEVICE)
    assert torch.equal(tensor, tensor.clone())
    assert torch.equal((tensor > tensor.relu()).cpu(), per_tensor() > per_tensor().relu())


def test_several_tensors_are_quantized_at_once():
    def quantize(device):
        scales, zero_points = SCALES[:2].to(device), ZERO_POINTS[:2].to(device)
        return torch.quantize_per_tensor([values(device)] * 2, scales, zero_points, torch.quint8)

    for actual, expected in zip(quantize(DEVICE), quantize("cpu"), strict=True):
        assert_same(actual, expected)


def test_fake_quantization_has_a_gradient():
    x = values(DEVICE).requires_grad_()
    torch.fake_quantize_per_tensor_affine(x, 0.01, 0, 0, 100).sum().backward()
    assert torch.equal(x.grad.cpu(), ((values() >= 0) & (values() <= 1)).float())


def test_linear_with_weights_that_the_host_packed():
    weight = torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    actual = torch.ops.quantized.linear(per_tensor(DEVICE), packed, 0.1, 3)
    assert_same(actual, torch.ops.quantized.linear(per_tensor(), packed, 0.1, 3))


def test_weights_on_a_device_are_not_packed():
    with pytest.raises(NotImplementedError, match="linear_prepack"):
        torch.ops.quantized.linear_prepack(per_tensor(DEVICE, torch.qint8), None)


def test_parameters_by_channel_live_as_long_as_a_tensor_that_has_them():
    expected = per_channel().dequantize()
    on_host = per_channel(DEVICE).cpu()
    scales = per_channel(DEVICE).q_per_channel_scales()
    gc.collect()
    over = [torch.full((n,), 9.0, device=DEVICE) for n in range(1, 40)]  # reuses freed memory
    assert torch.equal(on_host.dequantize(), expected)
    assert torch.equal(scales.cpu(), SCALES.double())
    assert len(over) == 39
