"""Dtypes that CUDA's kernels lack raise CUDA's error; in openreg mode it says openreg for cuda."""

import pytest
import torch
import torch.nn.functional as F
from torch_openreg._releases import RELEASE

from device import DEVICE


def ones(*shape, dtype=torch.int64):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def eight_bits():
    return ones(3, 3, dtype=torch.float8_e4m3fn)


def unsigned():
    return ones(3, 3, dtype=torch.uint16)


REFUSED = {
    "mm": (lambda: ones(2, 3) @ ones(3, 2), "addmm_cuda", "Long"),
    "mm of bytes": (
        lambda: ones(2, 3, dtype=torch.uint8) @ ones(3, 2, dtype=torch.uint8),
        "addmm_cuda",
        "Byte",
    ),
    "mm of bools": (
        lambda: ones(2, 3, dtype=torch.bool) @ ones(3, 2, dtype=torch.bool),
        "addmm_cuda",
        "Bool",
    ),
    "linear": (lambda: F.linear(ones(2, 3), ones(4, 3), ones(4)), "addmm_cuda", "Long"),
    "addmm_": (lambda: ones(2, 2).addmm_(ones(2, 3), ones(3, 2)), "addmm_cuda", "Long"),
    "bmm": (lambda: ones(1, 2, 3) @ ones(1, 3, 2), "baddbmm_cuda", "Long"),
    "mv": (lambda: ones(2, 3) @ ones(3), "addmv_impl_cuda", "Long"),
    "dot": (lambda: ones(3) @ ones(3), "dot", "Long"),
    "vdot": (lambda: torch.vdot(ones(3), ones(3)), "dot", "Long"),
    "conv1d": (lambda: F.conv1d(ones(1, 1, 3), ones(1, 1, 2)), "slow_conv2d_cuda", "Long"),
    "conv2d": (lambda: F.conv2d(ones(1, 1, 3, 3), ones(1, 1, 2, 2)), "slow_conv2d_cuda", "Long"),
    "dilated": (
        lambda: F.conv2d(ones(1, 1, 3, 3), ones(1, 1, 2, 2), dilation=2),
        "slow_conv_dilated<>",
        "Long",
    ),
    "conv3d": (
        lambda: F.conv3d(ones(1, 1, 3, 3, 3), ones(1, 1, 2, 2, 2)),
        "slow_conv_dilated<>",
        "Long",
    ),
    "conv_transpose2d": (
        lambda: F.conv_transpose2d(ones(1, 1, 3, 3), ones(1, 1, 2, 2)),
        "slow_conv_transpose2d_out_cuda",
        "Long",
    ),
    "avg_pool2d": (lambda: F.avg_pool2d(ones(1, 4, 4), 2), "avg_pool2d_out_cuda_frame", "Long"),
    "avg_pool3d": (lambda: F.avg_pool3d(ones(1, 4, 4, 4), 2), "avg_pool3d_out_cuda", "Long"),
    "max_pool2d": (
        lambda: F.max_pool2d(ones(1, 4, 4), 2),
        "max_pool2d_with_indices_out_cuda_frame",
        "Long",
    ),
    "interpolate": (
        lambda: F.interpolate(ones(1, 1, 4, 4, dtype=torch.uint8), (2, 2), mode="bilinear"),
        "upsample_bilinear2d_out_frame",
        "Byte",
    ),
    "histc": (lambda: torch.histc(ones(4, dtype=torch.float16)), "histc", "Half"),
    "igamma": (
        lambda: torch.igamma(ones(4, dtype=torch.bfloat16), ones(4, dtype=torch.bfloat16)),
        "igamma_cuda",
        "BFloat16",
    ),
    "scatter_reduce": (
        lambda: ones(3, dtype=torch.bool).scatter_reduce(
            0, ones(1), ones(1, dtype=torch.bool), "amax"
        ),
        "cuda_scatter_gather_base_kernel_func",
        "Bool",
    ),
    "scatter": (
        lambda: ones(3, dtype=torch.complex64).scatter_(
            0, ones(1), ones(1, dtype=torch.complex64), reduce="multiply"
        ),
        "cuda_scatter_gather_base_kernel_func",
        "ComplexFloat",
    ),
    "scatter of a number": (
        lambda: ones(3, dtype=torch.bool).scatter(0, ones(1), True, reduce="multiply"),
        "cuda_scatter_fill_base_kernel_reduce_multiply",
        "Bool",
    ),
    # The name of the CPU's kernel is another one.
    "softmax": (lambda: ones(4).softmax(0), "host_softmax", "Long"),
    "silu": (lambda: F.silu(ones(4)), "silu_cuda", "Long"),
    "elu_": (lambda: F.elu(ones(4), inplace=True), "elu_cuda", "Long"),
    "bitwise_and": (
        lambda: ones(4, dtype=torch.float32) & ones(4, dtype=torch.float32),
        "bitwise_and_cuda",
        "Float",
    ),
    "mm of float8": (lambda: eight_bits() @ eight_bits().t(), "addmm_cuda", "Float8_e4m3fn"),
    "mul of float8": (lambda: eight_bits() * eight_bits(), "mul_cuda", "Float8_e4m3fn"),
    "abs of float8": (lambda: eight_bits().abs(), "abs_cuda", "Float8_e4m3fn"),
    "roll of float8": (lambda: eight_bits().roll(1, 0), "roll_cuda", "Float8_e4m3fn"),
    "mul of uint16": (lambda: unsigned() * unsigned(), "mul_cuda", "UInt16"),
    "and of uint16": (lambda: unsigned() & unsigned(), "bitwise_and_cuda", "UInt16"),
    "sort of uint16": (lambda: unsigned().sort(), "sort", "UInt16"),
    "geometric_ of bools": (
        lambda: ones(3, dtype=torch.bool).geometric_(0.5),
        "geometric_cuda",
        "Bool",
    ),
}
if RELEASE < (2, 14):
    REFUSED["angle"] = (
        lambda: torch.angle(ones(4, dtype=torch.float16)),
        "angle_cuda",
        "Half",
    )


@pytest.mark.parametrize("name", REFUSED)
def test_dtype_is_refused_by_the_name_of_the_kernel(name):
    work, kernel, dtype = REFUSED[name]
    with pytest.raises(NotImplementedError) as refused:
        work()
    assert str(refused.value) == (
        f"\"{kernel.replace('cuda', DEVICE)}\" not implemented for '{dtype}'"
    )


def test_operators_missing_on_cuda_are_refused():
    backend = "CUDA" if DEVICE == "cuda" else DEVICE
    words = "^Could not run 'aten::{}' with arguments from the '{}' backend"
    with pytest.raises(NotImplementedError, match=words.format("histogram.bin_ct", backend)):
        torch.histogram(ones(4, dtype=torch.float32), 3)
    words = words.format("empty_strided", f"Sparse{backend}")
    with pytest.raises(NotImplementedError, match=words):
        torch.empty_strided((2,), (1,), layout=torch.sparse_coo, device=DEVICE)


def test_empty_tensors_are_not_refused():
    """CUDA's kernels return before they check the dtype."""
    assert torch.equal(ones(2, 0) @ ones(0, 3), torch.zeros(2, 3, dtype=torch.int64, device=DEVICE))


def test_integers_that_cuda_computes_with_still_work():
    assert ones(3).sum().item() == 3
    assert F.max_unpool1d(ones(1, 2), ones(1, 2), 2).shape == (1, 4)
    assert (ones(2, 3) * ones(2, 1)).tolist() == [[1, 1, 1]] * 2
    assert torch.einsum("i,j->ij", ones(2), ones(2)).tolist() == [[1, 1]] * 2


@pytest.mark.parametrize("pivot", [True, False])
def test_lu_with_and_without_pivoting(pivot):
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64).to(DEVICE)
    permutation, lower, upper = torch.linalg.lu(matrices, pivot=pivot)
    product = lower @ upper
    torch.testing.assert_close(permutation @ product if pivot else product, matrices)
    packed, pivots, info = torch.linalg.lu_factor_ex(matrices, pivot=pivot)
    torch.testing.assert_close(packed.triu()[:, :3], upper)
    if not pivot:
        assert pivots.tolist() == [[1, 2, 3]] * 2 and pivots.dtype == torch.int32
    assert info.tolist() == [0, 0]


def test_lu_without_pivoting_reports_a_zero_pivot():
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]], device=DEVICE)
    assert torch.linalg.lu_factor_ex(singular, pivot=False).info.item() == 2


@pytest.mark.parametrize("pivot", [True, False])
def test_lu_refuses_results_on_the_host(pivot):
    x = ones(3, 3, dtype=torch.float32)
    results = torch.empty(3, 3), torch.empty(3, 3), torch.empty(3, 3)
    with pytest.raises(RuntimeError, match="on the same device, but got P is on cpu"):
        torch.linalg.lu(x, pivot=pivot, out=results)
