"""Operators on lists of tensors, and where they accept a zero-dimensional tensor."""

import pytest
import torch

from device import DEVICE

# Without alpha, a zero-dimensional tensor counts as a number on any device.
ADDS = {
    "_foreach_add": torch._foreach_add,
    "_foreach_add_": lambda tensors, *more, **named: (
        torch._foreach_add_(tensors, *more, **named) or tensors
    ),
}


def tensors(**options):
    return [torch.arange(4.0, device=DEVICE).to(**options) for _ in range(2)]


@pytest.mark.parametrize("name", ADDS)
def test_addend_on_another_device_is_refused(name):
    words = "scalar tensor expected to be on" if name[-1] != "_" else "scalar tensor is expected"
    with pytest.raises(RuntimeError, match=f"{words}.* {DEVICE}:0 but is on cpu"):
        ADDS[name](tensors(), torch.tensor(1.0), alpha=1.0)
    with pytest.raises(RuntimeError, match=f"{words}.* {DEVICE}:0 but is on {DEVICE}:1"):
        ADDS[name](tensors(), torch.tensor(1.0, device=f"{DEVICE}:1"), alpha=1.0)


@pytest.mark.parametrize("name", ADDS)
def test_addend_on_the_device_is_added(name):
    expected = [torch.arange(4.0) + 6 for _ in range(2)]
    result = ADDS[name](tensors(), torch.tensor(2.0, device=DEVICE), alpha=3)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(result, expected, strict=True))


# CUDA's list kernel does not support these: another dtype than the addend, and gaps.
ONE_BY_ONE = {
    "another dtype": lambda: tensors(dtype=torch.float64),
    "with gaps": lambda: [torch.zeros(4, 2, device=DEVICE)[:, 0] for _ in range(2)],
}


@pytest.mark.parametrize("name", ADDS)
@pytest.mark.parametrize("kind", ONE_BY_ONE)
def test_lists_without_a_cuda_list_kernel_accept_a_host_addend(name, kind):
    expected = [each.cpu() + 2 for each in ONE_BY_ONE[kind]()]
    result = ADDS[name](ONE_BY_ONE[kind](), torch.tensor(2.0), alpha=1)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(result, expected, strict=True))


@pytest.mark.parametrize("name", ADDS)
def test_addend_with_dimensions_is_refused(name):
    with pytest.raises(RuntimeError, match="scalar tensor expected to be 0 dim but it has 1 dim"):
        ADDS[name](tensors(), torch.ones(1), alpha=1.0)


def test_empty_list_is_refused():
    with pytest.raises(RuntimeError, match="Tensor list must have at least one tensor"):
        torch._foreach_add([], torch.tensor(1.0, device=DEVICE), alpha=1.0)


@pytest.mark.parametrize("operator", [torch._foreach_mul, torch._foreach_div])
def test_host_factor_is_accepted(operator):
    result = operator(tensors(), torch.tensor(2.0))
    expected = operator([torch.arange(4.0)] * 2, torch.tensor(2.0))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(result, expected, strict=True))


def test_list_and_numbers_of_different_lengths_are_refused():
    with pytest.raises(RuntimeError, match="must have same number of elements as scalar list"):
        torch._foreach_mul(tensors(), [1.0, 2.0, 3.0])


def test_list_on_the_host_with_a_number_on_the_device_is_refused():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._foreach_mul([torch.arange(4.0)], torch.tensor(2.0, device=DEVICE))


def test_numbers_of_another_dtype_change_the_dtype():
    (result,) = torch._foreach_mul([torch.arange(4, device=DEVICE)], 0.5)
    assert result.tolist() == [0, 0.5, 1, 1.5]
