"""log_sigmoid saves nothing in forward, as on CUDA."""

import pytest
import torch
import torch.nn.functional as F

from device import DEVICE, module

aten = torch.ops.aten


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_values_and_gradients_are_those_of_the_cpu(dtype):
    x = torch.linspace(-30, 30, 61, dtype=torch.float64).to(dtype)

    def compute(x):
        leaf = x.clone().requires_grad_()
        result = F.logsigmoid(leaf)
        return [result.detach(), *torch.autograd.grad(result.sum(), leaf)]

    for a, b in zip(compute(x.to(DEVICE)), compute(x), strict=True):
        assert torch.equal(a.cpu(), b)


def test_nothing_is_saved():
    x = torch.rand(1024, device=DEVICE, requires_grad=True)
    before = module.memory_allocated()
    result = F.logsigmoid(x)
    assert module.memory_allocated() - before == 4096
    assert aten.log_sigmoid_forward(x.detach())[1].shape == (0,)
    del result


def test_gradients_have_gradients():
    x = torch.linspace(-2, 2, 5, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(F.logsigmoid, x)
    assert torch.autograd.gradgradcheck(F.logsigmoid, x)
