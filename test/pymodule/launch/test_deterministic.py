"""Uninitialized memory is filled under deterministic algorithms, as on CUDA."""

import pytest
import torch

from device import DEVICE, module


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


FACTORIES = {
    "empty": lambda dtype: torch.empty(2, 3, dtype=dtype, device=DEVICE),
    "empty_strided": lambda dtype: torch.empty_strided((2, 3), (8, 2), dtype=dtype, device=DEVICE),
    "empty_like": lambda dtype: torch.empty_like(torch.ones(2, 3, dtype=dtype, device=DEVICE)),
    "new_empty": lambda dtype: torch.ones(1, dtype=dtype, device=DEVICE).new_empty(2, 3),
    "empty_permuted": lambda dtype: torch.empty_permuted(
        (2, 3), (1, 0), dtype=dtype, device=DEVICE
    ),
    "resize_": lambda dtype: torch.empty(0, dtype=dtype, device=DEVICE).resize_(2, 3),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_floating_point_memory_is_nan(deterministic, name, dtype):
    assert FACTORIES[name](dtype).isnan().all()


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_integer_memory_is_the_largest_integer(deterministic, name, dtype):
    assert (FACTORIES[name](dtype) == torch.iinfo(dtype).max).all()


def test_existing_elements_are_kept_when_a_tensor_grows(deterministic):
    tensor = torch.ones(2, device=DEVICE).resize_(4)
    assert tensor[:2].tolist() == [1.0, 1.0] and tensor[2:].isnan().all()


@pytest.fixture
def memory_without_nan():
    """Free a block without NaN that the next tensor of this many elements gets."""
    elements = 1 << 22
    module.empty_cache()
    torch.full((elements,), 3.0, device=DEVICE)
    return elements


def test_filling_can_be_switched_off(deterministic, monkeypatch, memory_without_nan):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    assert not torch.empty(memory_without_nan, device=DEVICE).isnan().any()


def test_nothing_is_filled_without_deterministic_algorithms(memory_without_nan):
    assert not torch.empty(memory_without_nan, device=DEVICE).isnan().any()
