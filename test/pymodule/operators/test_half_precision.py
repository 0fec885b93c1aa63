"""Operators compute half precision in float32 and round the results once, as on CUDA.

The CPU's kernels of these operators compute in half precision, or are slow in float16. That they
get copies of the arguments changes no memory of the device.
"""

import pytest
import torch
import torch.nn.functional as F

from device import DEVICE, module

HALVES = [torch.float16, torch.bfloat16]


def numbers(*shape, scale=1.0):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator) * scale


def places(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(shape, generator=generator) * 2.2 - 1.1


def interpolation(mode, shape, factor):
    return lambda x: F.interpolate(x, scale_factor=factor, mode=mode), [numbers(*shape)]


IMAGE, VOLUME = (2, 3, 37, 41), (2, 3, 9, 17, 21)
SAMPLING = {
    mode: (
        lambda x, grid, mode=mode: F.grid_sample(x, grid, mode=mode, align_corners=False),
        [numbers(*IMAGE), places(2, 50, 50, 2)],
    )
    for mode in ("bilinear", "nearest", "bicubic")
}
IN_FLOAT32 = {
    **SAMPLING,
    "grid_sample of volumes": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=True),
        [numbers(*VOLUME), places(2, 8, 8, 8, 3)],
    ),
    "linear": interpolation("linear", (3, 2, 40), 2.3),
    "bilinear upsampling": interpolation("bilinear", IMAGE, 3.3),
    "bicubic upsampling": interpolation("bicubic", IMAGE, 3.3),
    "trilinear": interpolation("trilinear", VOLUME, 2.3),
    "fold": (lambda x: F.fold(x, (15, 15), 6), [numbers(4, 144, 100)]),
    "unfold": (lambda x: F.unfold(x, 5), [numbers(*IMAGE)]),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 3), [numbers(*VOLUME)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 7, 3), [numbers(*IMAGE)]),
    "prod": (lambda x: x.prod(1), [numbers(64, 9)]),
}
# The CPU's kernels compute them in bfloat16 as well.
PRODUCTS = {
    "mm": (lambda x, y: x @ y, [numbers(33, 257), numbers(257, 65)]),
    "linear layer": (F.linear, [numbers(9, 130), numbers(70, 130), numbers(70)]),
    "bmm": (torch.bmm, [numbers(3, 20, 150), numbers(3, 150, 10)]),
    "baddbmm": (torch.baddbmm, [numbers(3, 20, 10), numbers(3, 20, 150), numbers(3, 150, 10)]),
    "mv": (torch.mv, [numbers(40, 300), numbers(300)]),
    "conv1d": (F.conv1d, [numbers(2, 8, 60), numbers(4, 8, 9)]),
    "conv2d": (F.conv2d, [numbers(*IMAGE), numbers(6, 3, 5, 5), numbers(6)]),
    "conv3d": (F.conv3d, [numbers(*VOLUME), numbers(4, 3, 3, 3, 3)]),
    "depthwise": (
        lambda x, weight: F.conv2d(x, weight, groups=3),
        [numbers(*IMAGE), numbers(3, 1, 5, 5)],
    ),
    "conv_transpose2d": (F.conv_transpose2d, [numbers(*IMAGE), numbers(3, 4, 5, 5)]),
    "conv_transpose3d": (F.conv_transpose3d, [numbers(*VOLUME), numbers(3, 4, 3, 3, 3)]),
}
CASES = [
    *((name, dtype) for name in IN_FLOAT32 for dtype in HALVES),
    *((name, torch.float16) for name in PRODUCTS),
]


def values_and_gradients(function, tensors):
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    output = function(*leaves)
    weight = numbers(*output.shape).bfloat16().to(output)  # the same in each dtype
    return [output.detach(), *torch.autograd.grad(output, leaves, weight)]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_results_are_rounded_once(name, dtype):
    function, tensors = (IN_FLOAT32 | PRODUCTS)[name]
    tensors = [tensor.to(dtype) for tensor in tensors]
    actual = values_and_gradients(function, [tensor.to(DEVICE) for tensor in tensors])
    expected = values_and_gradients(function, [tensor.double() for tensor in tensors])
    output, exact = actual[0].cpu(), expected[0]
    # float32 adds up to so many numbers; what they cancel is lost in it, too.
    slack = 1e-5 * exact.abs().max()
    torch.testing.assert_close(
        output.double(), exact, rtol=torch.finfo(dtype).eps * 0.51, atol=float(slack)
    )
    for one, other in zip(actual[1:], expected[1:], strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(
            one.cpu().double(), other, rtol=0.02, atol=0.01 * float(other.abs().max())
        )


# ---- memory and streams --------------------------------------------------------------------------


def product():
    x = numbers(300, 400).half().to(DEVICE)
    return lambda: x @ x.T, 300 * 300 * 2


def convolution():
    x, weight = numbers(2, 8, 40, 40).half().to(DEVICE), numbers(4, 8, 3, 3).half().to(DEVICE)
    return lambda: F.conv2d(x, weight), 2 * 4 * 38 * 38 * 2


def interpolated():
    x = numbers(2, 8, 40, 40).bfloat16().to(DEVICE)
    return lambda: F.interpolate(x, scale_factor=2, mode="bilinear"), 2 * 8 * 80 * 80 * 2


@pytest.mark.parametrize("make", [product, convolution, interpolated])
def test_copies_are_no_memory_of_the_device(make):
    call, result_bytes = make()
    for _ in range(3):  # the first launch learns where the kernel takes memory
        before = module.memory_allocated()
        module.reset_peak_memory_stats()
        result = call()
        assert module.max_memory_allocated() - before == (result_bytes + 511) // 512 * 512
        del result


@pytest.mark.parametrize("make", [product, convolution, interpolated])
def test_launches_are_queued(make, close_gate):
    call, _ = make()
    expected = call()
    gate = close_gate()
    result = call()
    assert not torch.accelerator.current_stream().query()
    gate.open()
    assert torch.equal(result, expected)


@pytest.mark.parametrize("make", [product, convolution, interpolated])
def test_launches_are_captured(make):
    call, _ = make()
    expected = call()
    graph = module.CUDAGraph()
    with module.graph(graph):
        result = call()
    graph.replay()
    assert torch.equal(result, expected)
