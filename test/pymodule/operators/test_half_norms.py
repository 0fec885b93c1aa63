"""Normalization of float16 and bfloat16: float32 statistics, and results that are rounded once."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from device import DEVICE, module

HALFS = [torch.float16, torch.bfloat16]
EPSILON = 1e-5


def of(dtype, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def there(*tensors):
    return [None if tensor is None else tensor.to(DEVICE) for tensor in tensors]


@pytest.mark.parametrize("dtype", HALFS)
@pytest.mark.parametrize("has_weight", [True, False])
def test_statistics_of_layers_are_wide(dtype, has_weight):
    x = of(dtype, 4, 6)
    weight, bias = (of(dtype, 6, seed=1), of(dtype, 6, seed=2)) if has_weight else (None, None)
    wide = [None if each is None else each.float() for each in (x, weight, bias)]
    result, mean, rstd = torch.native_layer_norm(*there(x), [6], *there(weight, bias), EPSILON)
    expected, its_mean, its_rstd = torch.native_layer_norm(wide[0], [6], *wide[1:], EPSILON)
    assert (result.dtype, mean.dtype, rstd.dtype) == (dtype, torch.float32, torch.float32)
    assert_close(mean.cpu(), its_mean)
    assert_close(rstd.cpu(), its_rstd)
    assert torch.equal(result.cpu(), expected.to(dtype))


BATCHES = {
    "native_batch_norm": lambda x, w, b, m, v: torch.native_batch_norm(
        x, w, b, m, v, True, 0.1, EPSILON
    ),
    "legit": lambda x, w, b, m, v: torch.ops.aten._native_batch_norm_legit(
        x, w, b, m, v, True, 0.1, EPSILON
    ),
    "no_stats": lambda x, w, b, m, v: torch.ops.aten._native_batch_norm_legit.no_stats(
        x, w, b, True, 0.1, EPSILON
    ),
    "with_update": lambda x, w, b, m, v: torch.ops.aten._batch_norm_with_update(
        x, w, b, m, v, 0.1, EPSILON
    ),
}


@pytest.mark.parametrize("dtype", HALFS)
@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("has_weight", [True, False])
def test_statistics_of_batches_are_wide(dtype, name, has_weight):
    x, mean, variance = of(dtype, 5, 3, 4), of(dtype, 3, seed=3), of(dtype, 3, seed=4).abs()
    weight, bias = (of(dtype, 3, seed=1), of(dtype, 3, seed=2)) if has_weight else (None, None)
    wide = [None if each is None else each.float() for each in (x, weight, bias, mean, variance)]
    arguments = there(x, weight, bias, mean, variance)
    results, expected = BATCHES[name](*arguments), BATCHES[name](*wide)
    assert [each.dtype for each in results[:3]] == [dtype, torch.float32, torch.float32]
    for result, its in zip(results[1:3], expected[1:3], strict=True):
        assert_close(result.cpu(), its)
    assert_close(results[0].cpu(), expected[0].to(dtype))
    for running, its in zip(arguments[3:], wide[3:], strict=True):
        assert running.dtype == dtype
        assert torch.equal(running.cpu(), its.to(dtype))


MODULES = {
    "layer": lambda: nn.LayerNorm(6),
    "layer without weights": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "layer without bias": lambda: nn.LayerNorm(6, bias=False),
    "batch": lambda: nn.BatchNorm1d(6),
    "batch without weights": lambda: nn.BatchNorm1d(6, affine=False),
    "batch without running statistics": lambda: nn.BatchNorm1d(6, track_running_stats=False),
}


@pytest.mark.parametrize("dtype", HALFS)
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_those_of_wide_modules(dtype, name, training):
    wide = MODULES[name]().train(training)
    module = MODULES[name]().train(training)
    module.load_state_dict(wide.state_dict())
    module.to(DEVICE, dtype)
    x, gradient = of(dtype, 5, 6), of(dtype, 5, 6, seed=1)
    inputs = [x.float().requires_grad_(), x.to(DEVICE).requires_grad_()]
    wide(inputs[0]).backward(gradient.float())
    module(inputs[1]).backward(gradient.to(DEVICE))
    digits = torch.finfo(dtype).eps * 4
    expected = [inputs[0], *wide.parameters()]
    for actual, its in zip([inputs[1], *module.parameters()], expected, strict=True):
        assert actual.grad.dtype == dtype
        assert_close(actual.grad.float().cpu(), its.grad, rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", HALFS)
@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_in_float32_need_channels_last_as_on_cuda(dtype, training):
    layer = nn.BatchNorm2d(6).train(training)
    for parameter in layer.parameters():
        parameter.data = parameter.to(dtype)
    layer.to(DEVICE)
    x = of(dtype, 2, 6, 3, 3).to(DEVICE).requires_grad_()
    name = {torch.float16: "Half", torch.bfloat16: "BFloat16"}[dtype]
    loss = layer(x).sum()
    with pytest.raises(RuntimeError, match=f"running_mean to have type {name} but got Float"):
        loss.backward()
    layer(x.to(memory_format=torch.channels_last)).sum().backward()
    assert x.grad.dtype == dtype
    layer.running_mean, layer.running_var = (
        layer.running_mean.to(dtype),
        layer.running_var.to(dtype),
    )
    layer(x).sum().backward()
    layer.float()(x.detach().float().requires_grad_()).sum().backward()
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", HALFS)
def test_weights_in_float32_are_left_so(dtype):
    x, weight = of(dtype, 4, 6).to(DEVICE), of(torch.float32, 6).to(DEVICE).requires_grad_()
    F.layer_norm(x, (6,), weight).sum().backward()
    assert weight.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", HALFS)
@pytest.mark.parametrize("sizes", [(0, 4), (3, 0)])
def test_statistics_of_empty_layers_are_wide(dtype, sizes):
    x = torch.empty(sizes, dtype=dtype, device=DEVICE)
    _, mean, rstd = torch.native_layer_norm(x, sizes[1:], None, None, EPSILON)
    assert mean.dtype == rstd.dtype == torch.float32
    assert mean.shape == rstd.shape == (sizes[0], 1)


@pytest.mark.parametrize("dtype", HALFS)
def test_empty_input_is_normalised(dtype):
    assert F.layer_norm(torch.empty(0, 6, dtype=dtype, device=DEVICE), (6,)).shape == (0, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALFS])
def test_evaluation_returns_the_statistics_that_it_used(dtype):
    x, weight, bias = of(dtype, 4, 6), of(dtype, 6, seed=1), of(dtype, 6, seed=2)
    mean, variance = of(dtype, 6, seed=3), of(dtype, 6, seed=4).abs()
    inputs = there(x, weight, bias, mean, variance)
    found, its_mean, its_inverse = torch.native_batch_norm(*inputs, False, 0.1, EPSILON)
    wide = dtype if dtype == torch.float64 else torch.float32
    assert torch.equal(its_mean.cpu(), mean.to(wide))
    assert_close(its_inverse.cpu(), (variance.to(wide) + EPSILON).rsqrt())
    assert_close(found.cpu(), F.batch_norm(x, mean, variance, weight, bias, False, 0.1, EPSILON))
    assert torch.equal(inputs[3].cpu(), mean) and torch.equal(inputs[4].cpu(), variance)


@pytest.mark.parametrize("training", [True, False])
def test_batches_of_half_precision_hold_their_results_only(training):
    layer = nn.BatchNorm1d(512).to(DEVICE, torch.bfloat16).train(training)
    x = of(torch.bfloat16, 64, 512).to(DEVICE).requires_grad_()
    for _ in range(2):  # learns, and knows
        module.synchronize()
        module.reset_peak_memory_stats()
        before = module.memory_allocated()
        output = layer(x)
        results = 64 * 512 * 2 + 2 * 512 * 4
        assert module.memory_allocated() - before == results
        if training:
            counter = 512  # num_batches_tracked is replaced
            assert module.max_memory_allocated() - before <= results + counter
        else:
            assert module.max_memory_allocated() - before == results
        del output
