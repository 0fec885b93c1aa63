"""RMS normalization is one operator, as on CUDA. Values and gradients are those of the CPU."""

import pytest
import torch
import torch.nn.functional as F

from device import DEVICE, module

TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
EVERY_DTYPE = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def norm(dtype, device, sizes=(4, 3, 8), shape=(8,), with_weight=True, eps=1e-5):
    """Return the result and the gradients."""
    generator = torch.Generator().manual_seed(0)
    x, weight, gradient = (
        torch.randn(each, generator=generator, dtype=torch.float64).to(device, dtype)
        for each in (sizes, shape, sizes)
    )
    leaves = [x.requires_grad_(), *([weight.requires_grad_()] if with_weight else [])]
    result = F.rms_norm(x, shape, weight if with_weight else None, eps)
    return [result.detach(), *torch.autograd.grad(result, leaves, gradient)]


@EVERY_DTYPE
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("shape", [(8,), (3, 8), (4, 3, 8)], ids=str)
@pytest.mark.parametrize("eps", [1e-5, None])
def test_values_and_gradients_are_those_of_the_cpu(dtype, with_weight, shape, eps):
    options = {"shape": shape, "with_weight": with_weight, "eps": eps}
    expected = norm(dtype, "cpu", **options)
    for a, b in zip(norm(dtype, DEVICE, **options), expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a.cpu(), b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_it_saves_one_number_for_each_row():
    x = torch.rand(512, 256, device=DEVICE, requires_grad=True)
    weight = torch.rand(256, device=DEVICE, requires_grad=True)
    before = module.memory_allocated()
    result = F.rms_norm(x, (256,), weight)
    assert result.grad_fn.name() == "FusedRmsNormBackward0"
    assert module.memory_allocated() - before == (512 * 256 + 512) * 4


@EVERY_DTYPE
def test_the_saved_numbers_are_float32_for_half_precision(dtype):
    x = torch.rand(2, 8, device=DEVICE).to(dtype)
    result, saved = torch.ops.aten._fused_rms_norm(x, [8], None, 0.0)
    assert result.dtype == dtype
    assert saved.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = x.double().square().mean(1, keepdim=True).rsqrt()
    torch.testing.assert_close(saved.double(), expected, rtol=1e-5, atol=0)


def test_only_the_wanted_gradients_are_computed():
    x, weight = torch.rand(2, 8, device=DEVICE), torch.rand(8, device=DEVICE, requires_grad=True)
    F.rms_norm(x, (8,), weight).sum().backward()
    assert x.grad is None and weight.grad is not None
    arguments = [torch.ones_like(x), x, [8], torch.ones(2, 1, device=DEVICE), weight.detach()]
    of_x, of_weight = torch.ops.aten._fused_rms_norm_backward(*arguments, [True, False])
    assert of_x is not None and of_weight is None


def test_gradients_have_gradients():
    x = torch.rand(2, 3, device=DEVICE, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(3, device=DEVICE, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *each: F.rms_norm(each[0], (3,), each[1]), (x, weight))
    assert torch.autograd.gradgradcheck(
        lambda *each: F.rms_norm(each[0], (3,), each[1]), (x, weight)
    )


def test_no_rows():
    result = F.rms_norm(torch.rand(0, 8, device=DEVICE), (8,))
    assert result.shape == (0, 8)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64], ids=str)
def test_other_dtypes_are_refused_with_the_text_of_cuda(dtype):
    with pytest.raises(NotImplementedError, match='"LayerNormKernelImpl" not implemented for'):
        torch.ops.aten._fused_rms_norm(torch.ones(2, 8, dtype=dtype, device=DEVICE), [8], None, 0)


def test_another_shape_is_refused():
    x = torch.rand(2, 8, device=DEVICE)
    with pytest.raises(RuntimeError, match="expected input with shape"):
        F.rms_norm(x, (4,))
    with pytest.raises(RuntimeError, match="Expected weight to be of same shape"):
        F.rms_norm(x, (8,), torch.rand(4, device=DEVICE))


def test_it_is_asynchronous(close_gate):
    x = torch.rand(4, 8, device=DEVICE, requires_grad=True)

    def work():
        result = F.rms_norm(x, (8,))
        return [result.detach(), *torch.autograd.grad(result.sum(), x)]

    expected = work()
    module.synchronize()
    gate = close_gate()
    results = work()
    assert not module.current_stream().query()
    gate.open()
    for a, b in zip(results, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_it_compiles(backend):
    torch._dynamo.reset()
    x, weight = torch.rand(4, 8), torch.rand(8)
    compiled = torch.compile(lambda x, weight: F.rms_norm(x, (8,), weight) * 2, backend=backend)
    expected = F.rms_norm(x, (8,), weight) * 2
    leaves = [x.to(DEVICE).requires_grad_(), weight.to(DEVICE).requires_grad_()]
    result = compiled(*leaves)
    torch.testing.assert_close(result.detach().cpu(), expected)
    assert all(each.isfinite().all() for each in torch.autograd.grad(result.sum(), leaves))
