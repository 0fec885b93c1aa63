"""Copies between host and devices, with every change of dtype and layout, agree with the CPU."""

import itertools

import pytest
import torch

from device import DEVICE, module

DEVICES = ["cpu", f"{DEVICE}:0", f"{DEVICE}:1"]
PAIRS = [pair for pair in itertools.product(DEVICES, DEVICES) if pair != ("cpu", "cpu")]

LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "strided": lambda t: t[::2, :, 1::2],
    "offset": lambda t: t[1:, 1:, 1:],
    "permuted": lambda t: t.permute(2, 0, 1),
}


def source():
    return torch.arange(4 * 4 * 4, dtype=torch.float32).reshape(4, 4, 4) - 20


@pytest.mark.parametrize(("origin", "target"), PAIRS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_copies_every_layout(origin, target, layout):
    view = LAYOUTS[layout](source().to(origin))
    copy = view.to(target, copy=True)
    expected = LAYOUTS[layout](source())
    assert copy.device == torch.device(target)
    torch.testing.assert_close(copy.cpu(), expected, rtol=0, atol=0)
    assert copy.stride() == expected.to("cpu", copy=True).stride()


@pytest.mark.parametrize(("origin", "target"), PAIRS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copy_into_every_layout_leaves_the_gaps_alone(origin, target, layout):
    base, expected = torch.zeros(4, 4, 4, device=target), torch.zeros(4, 4, 4)
    values = LAYOUTS[layout](source()).clone()
    LAYOUTS[layout](base).copy_(values.to(origin))
    LAYOUTS[layout](expected).copy_(values)
    assert torch.equal(base.cpu(), expected)


@pytest.mark.parametrize(("origin", "target"), PAIRS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (torch.float32, torch.float64),
        (torch.float64, torch.float16),
        (torch.float32, torch.int8),
        (torch.int64, torch.bfloat16),
        (torch.float32, torch.bool),
        (torch.complex64, torch.complex128),
        (torch.uint8, torch.complex64),
    ],
)
def test_copy_changes_the_dtype(origin, target, before, after):
    values = source().abs().to(before)
    copy = values.to(origin).to(target, after)
    assert copy.dtype == after and copy.device == torch.device(target)
    assert torch.equal(copy.cpu(), values.to(after))


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_copy_changes_dtype_and_layout_at_once(origin, target):
    base = torch.zeros(4, 4, 4, dtype=torch.int32, device=target)
    base.transpose(0, 1)[::2].copy_(source().to(origin)[:2])
    expected = torch.zeros(4, 4, 4, dtype=torch.int32)
    expected.transpose(0, 1)[::2].copy_(source()[:2])
    assert torch.equal(base.cpu(), expected)


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_copy_broadcasts(origin, target):
    base = torch.zeros(3, 4, device=target)
    base.copy_(torch.arange(4.0).to(origin))
    assert torch.equal(base.cpu(), torch.arange(4.0).expand(3, 4))


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_copy_of_an_expanded_tensor_writes_every_element(origin, target):
    copy = torch.arange(3.0).to(origin).expand(2, 3).to(target, copy=True).contiguous()
    assert copy.tolist() == [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_lazily_conjugated_tensor_is_copied(origin, target):
    values = torch.tensor([1 + 2j, 3 - 4j])
    conjugated = values.to(origin).conj()
    assert conjugated.is_conj()
    assert conjugated.to(target, copy=True).resolve_conj().cpu().tolist() == [1 - 2j, 3 + 4j]
    out = torch.zeros(2, dtype=torch.complex64, device=target)
    out.copy_(conjugated)
    assert out.cpu().tolist() == [1 - 2j, 3 + 4j]


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_copy_into_a_lazily_conjugated_tensor(origin, target):
    base = torch.zeros(2, dtype=torch.complex64, device=target)
    base.conj().copy_(torch.tensor([1 + 2j, 3 - 4j]).to(origin))
    assert base.cpu().tolist() == [1 - 2j, 3 + 4j]


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_lazily_negated_tensor_is_copied(origin, target):
    negated = torch.tensor([1 + 2j, 3 - 4j]).to(origin).conj().imag
    assert negated.is_neg()
    assert negated.to(target, copy=True).resolve_neg().cpu().tolist() == [-2.0, 4.0]


@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_overlapping_copy_is_refused_as_on_the_cpu(device):
    tensor = torch.arange(10.0, device=device)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        tensor[1:].copy_(tensor[:-1])


def test_copy_onto_itself_changes_nothing():
    tensor = torch.arange(10.0, device=DEVICE)
    tensor.copy_(tensor)
    assert torch.equal(tensor.cpu(), torch.arange(10.0))


def test_copy_into_a_tensor_that_overlaps_itself_is_refused():
    tensor = torch.zeros(1, 3, device=DEVICE).expand(4, 3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        tensor.copy_(torch.ones(4, 3))


def test_copy_of_a_shape_that_does_not_fit_is_refused():
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.zeros(3, device=DEVICE).copy_(torch.zeros(4))


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_empty_tensor_is_copied(origin, target):
    copy = torch.empty(0, 3).to(origin).to(target)
    assert copy.shape == (0, 3) and copy.device == torch.device(target)


def test_big_tensor_is_copied_exactly():
    values = torch.arange(3_000_001)
    assert torch.equal(values.to(f"{DEVICE}:0").to(f"{DEVICE}:1").cpu(), values)


def test_non_blocking_copies_arrive():
    values = torch.arange(1000.0)
    there = values.to(DEVICE, non_blocking=True)
    back = there.to("cpu", non_blocking=True)
    module.synchronize()
    assert torch.equal(back, values)


def test_tensor_is_made_from_python_data_and_arrays():
    values = [[1, 2], [3, 4]]
    assert torch.tensor(values, device=f"{DEVICE}:1").tolist() == values
    assert torch.as_tensor(torch.tensor(values).numpy(), device=DEVICE).tolist() == values


def test_clone_keeps_strides_and_owns_its_memory():
    tensor = source().to(DEVICE).transpose(0, 1)
    clone = tensor.clone()
    assert clone.stride() == tensor.stride()
    clone.zero_()
    assert torch.equal(tensor.cpu(), source().transpose(0, 1))


def test_float8_tensor_survives_a_round_trip():
    values = torch.tensor([0.5, 1.0, -2.0]).to(torch.float8_e4m3fn)
    back = values.to(DEVICE).cpu()
    assert torch.equal(back.view(torch.uint8), values.view(torch.uint8))
