"""The operators of SyncBatchNorm compute together what batch normalization computes."""

import pytest
import torch
from torch.testing import assert_close

from device import DEVICE

EPSILON = 1e-5
MOMENTUM = 0.1
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def of(dtype, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).to(DEVICE)


def statistics(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def close(actual, expected, dtype):
    digits = 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-5
    assert_close(actual.double(), expected.double(), rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_and_result(dtype):
    x, weight, bias = of(dtype, 6, 3, 5), of(dtype, 3, seed=1), of(dtype, 3, seed=2)
    mean, inverse = torch.batch_norm_stats(x, EPSILON)
    assert mean.dtype == inverse.dtype == statistics(dtype)
    assert_close(mean, x.to(mean.dtype).mean((0, 2)))
    result = torch.batch_norm_elemt(x, weight, bias, mean, inverse, EPSILON)
    whole = torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True)
    assert result.dtype == dtype
    close(result, whole, dtype)
    out = torch.empty_like(x)
    torch.batch_norm_elemt(x, weight, bias, mean, inverse, EPSILON, out=out)
    assert torch.equal(out, result)


@pytest.mark.parametrize("counted", [True, False])
def test_gathered_statistics_are_those_of_all_rows(counted):
    parts = [of(torch.float64, rows, 3, 4, seed=rows) for rows in ((2, 5) if counted else (4, 4))]
    each = [torch.batch_norm_stats(part, EPSILON) for part in parts]
    means, inverses = (torch.stack(values) for values in zip(*each, strict=True))
    running = [torch.zeros(3, dtype=torch.float64, device=DEVICE) for _ in range(2)]
    if counted:
        counts = torch.tensor([8.0, 20.0], dtype=torch.float64, device=DEVICE)
        gathered = torch.batch_norm_gather_stats_with_counts(
            parts[0], means, inverses, *running, MOMENTUM, EPSILON, counts
        )
    else:
        gathered = torch.batch_norm_gather_stats(
            parts[0], means, inverses, *running, MOMENTUM, EPSILON, 16
        )
    rows = torch.cat(parts)
    for value, expected in zip(gathered, torch.batch_norm_stats(rows, EPSILON), strict=True):
        assert_close(value, expected)
    assert_close(running[0], MOMENTUM * rows.mean((0, 2)))
    assert_close(running[1], MOMENTUM * rows.var((0, 2)))


def test_running_statistics_are_updated():
    x = of(torch.float32, 6, 3, 5)
    running = [torch.ones(3, device=DEVICE) for _ in range(2)]
    mean, variance = torch.batch_norm_update_stats(x, *running, MOMENTUM)
    assert_close(mean, x.mean((0, 2)))
    assert_close(variance, x.var((0, 2), unbiased=False))
    assert_close(running[0], 0.9 + MOMENTUM * mean)
    assert_close(running[1], 0.9 + MOMENTUM * x.var((0, 2)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype):
    x, weight, bias = of(dtype, 6, 3, 5), of(dtype, 3, seed=1), of(dtype, 3, seed=2)
    gradient = of(dtype, 6, 3, 5, seed=3)
    mean, inverse = torch.batch_norm_stats(x, EPSILON)
    total, product, for_weight, for_bias = torch.batch_norm_backward_reduce(
        gradient, x, mean, inverse, weight, True, True, True
    )
    counts = torch.tensor([30], dtype=torch.int32, device=DEVICE)
    for_input = torch.batch_norm_backward_elemt(
        gradient, x, mean, inverse, weight, total, product, counts
    )
    inputs = [each.double().requires_grad_() for each in (x, weight, bias)]
    whole = torch.nn.functional.batch_norm(inputs[0], None, None, *inputs[1:], training=True)
    expected = torch.autograd.grad(whole, inputs, gradient.double())
    for actual, wanted in zip((for_input, for_weight, for_bias), expected, strict=True):
        assert actual.dtype == dtype
        close(actual, wanted, dtype)


def test_only_requested_gradients_are_returned():
    x = of(torch.float32, 4, 2, 3)
    mean, inverse = torch.batch_norm_stats(x, EPSILON)
    parts = torch.batch_norm_backward_reduce(x, x, mean, inverse, None, False, False, True)
    assert [each is None for each in parts] == [True, True, True, False]
