"""Forward-mode derivatives: dual tensors have tangents on the device of their primals."""

import pytest
import torch
from torch.autograd import forward_ad

from device import DEVICE


def primal(device):
    return torch.linspace(0.1, 1, 6, dtype=torch.float64).view(2, 3).to(device)


def tangent(device):
    return torch.linspace(-1, 2, 6, dtype=torch.float64).view(2, 3).to(device)


def double_linear(x):
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2).to(x.device, torch.float64)(x)


def written_in_place(x):
    result = torch.zeros_like(x)
    result.copy_(x).mul_(x)
    return result


FUNCTIONS = {
    "arithmetic": lambda x: x * x / (x + 1) - x,
    "sin": torch.sin,
    "matmul": lambda x: x @ x.t(),
    "linear": double_linear,
    "softmax": lambda x: torch.softmax(x, -1),
    "logsumexp": lambda x: x.logsumexp(0),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "view": lambda x: x.view(-1)[1:4],
    "in place": written_in_place,
    "index_put": lambda x: torch.zeros_like(x).index_put((torch.tensor([1]),), x[0]),
    "complex": lambda x: torch.view_as_real(torch.complex(x, x) * 1j),
    "solve": lambda x: torch.linalg.solve(x @ x.t(), x),
}


def derivative(function, device):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(primal(device), tangent(device))
        return forward_ad.unpack_dual(function(dual))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_agree_with_the_cpu(name):
    ours, theirs = (derivative(FUNCTIONS[name], device) for device in (f"{DEVICE}:1", "cpu"))
    for actual, expected in zip(ours, theirs, strict=True):
        assert actual.device == torch.device(f"{DEVICE}:1")
        torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("target", [f"{DEVICE}:0", "cpu"])
def test_tangent_moves_with_its_primal(target):
    moved = derivative(lambda x: (x * 2).to(target), f"{DEVICE}:1")
    assert moved.primal.device == moved.tangent.device == torch.device(target)
    torch.testing.assert_close(moved.tangent.cpu(), 2 * tangent("cpu"))


@pytest.mark.parametrize("name", ["arithmetic", "matmul", "softmax", "complex"])
def test_forward_derivatives_are_right_by_finite_differences(name):
    x = primal(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(
        FUNCTIONS[name],
        x,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )


def test_second_derivatives_are_right_by_finite_differences():
    x = primal(DEVICE).requires_grad_()
    assert torch.autograd.gradgradcheck(
        FUNCTIONS["arithmetic"], x, check_fwd_over_rev=True, check_rev_over_rev=True
    )
