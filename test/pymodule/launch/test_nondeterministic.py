"""Under deterministic algorithms, exactly the operators without a deterministic implementation on
CUDA raise CUDA's error or warn.

The names in the errors are those that PyTorch's own tests expect of CUDA.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.common_utils import DeterministicGuard, TestCase

from device import DEVICE


def expect_alert(call, name):
    TestCase().check_nondeterministic_alert(call, name, True)


def expect_no_alert(call):
    TestCase().check_nondeterministic_alert(call, "", False)
    with DeterministicGuard(True):
        call()


def values(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype, device=DEVICE)


def differentiable(*shape):
    return torch.ones(*shape, device=DEVICE, requires_grad=True)


def interpolated(mode, *shape, **options):
    size = (6,) * (len(shape) - 2)
    return F.interpolate(
        differentiable(*shape), size=size, mode=mode, align_corners=False, **options
    )


def ctc_loss():
    targets = torch.ones(2, 3, dtype=torch.long, device=DEVICE)
    return nn.CTCLoss()(differentiable(8, 2, 5), targets, [8, 8], [3, 3])


BACKWARDS = {
    "adaptive_avg_pool2d_backward_cuda": lambda: nn.AdaptiveAvgPool2d(3)(differentiable(2, 5, 5)),
    "adaptive_avg_pool3d_backward_cuda": lambda: nn.AdaptiveAvgPool3d(3)(
        differentiable(2, 5, 5, 5)
    ),
    "adaptive_max_pool2d_backward_cuda": lambda: nn.AdaptiveMaxPool2d(3)(differentiable(2, 5, 5)),
    "avg_pool3d_backward_cuda": lambda: nn.AvgPool3d(3)(differentiable(2, 3, 3, 3)),
    "max_pool3d_with_indices_backward_cuda": lambda: nn.MaxPool3d(3)(differentiable(2, 3, 3, 3)),
    "fractional_max_pool2d_backward_cuda": lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5)(
        differentiable(2, 3, 4, 4)
    ),
    "fractional_max_pool3d_backward_cuda": lambda: nn.FractionalMaxPool3d(2, output_ratio=0.5)(
        differentiable(2, 3, 4, 4, 4)
    ),
    "upsample_linear1d_backward_out_cuda": lambda: interpolated("linear", 1, 2, 4),
    "upsample_bilinear2d_backward_out_cuda": lambda: torch._C._nn.upsample_bilinear2d(
        differentiable(1, 2, 4, 4), (6, 6), False
    ),
    "upsample_bicubic2d_backward_out_cuda": lambda: interpolated("bicubic", 1, 2, 4, 4),
    "upsample_trilinear3d_backward_out_cuda": lambda: torch._C._nn.upsample_trilinear3d(
        differentiable(1, 2, 4, 4, 4), (6, 6, 6), False
    ),
    "upsample_bilinear2d_aa_backward_out_cuda": lambda: interpolated(
        "bilinear", 1, 2, 4, 4, antialias=True
    ),
    "upsample_bicubic2d_aa_backward_out_cuda": lambda: interpolated(
        "bicubic", 1, 2, 4, 4, antialias=True
    ),
    "reflection_pad1d_backward_out_cuda": lambda: nn.ReflectionPad1d(1)(differentiable(2, 3, 4)),
    "reflection_pad3d_backward_out_cuda": lambda: nn.ReflectionPad3d(1)(
        differentiable(2, 3, 4, 4, 4)
    ),
    "ctc_loss_backward_gpu": ctc_loss,
    "embedding_bag_backward_cuda_max": lambda: F.embedding_bag(
        torch.zeros(2, 3, dtype=torch.long, device=DEVICE), differentiable(4, 3), mode="max"
    ),
    "grid_sampler_2d_backward_cuda": lambda: F.grid_sample(
        differentiable(1, 1, 2, 2), values(1, 1, 1, 2), align_corners=False
    ),
    "grid_sampler_3d_backward_cuda": lambda: F.grid_sample(
        differentiable(1, 1, 2, 2, 2), values(1, 1, 1, 2, 3), align_corners=False
    ),
}
if DEVICE == "cuda":
    BACKWARDS |= {
        "replication_pad1d_backward_cuda": lambda: nn.ReplicationPad1d(1)(differentiable(2, 3, 4)),
        "replication_pad2d_backward_cuda": lambda: nn.ReplicationPad2d(1)(
            differentiable(2, 3, 4, 4)
        ),
        "replication_pad3d_backward_cuda": lambda: nn.ReplicationPad3d(1)(
            differentiable(2, 3, 4, 4, 4)
        ),
    }


@pytest.mark.parametrize("name", BACKWARDS)
def test_backwards(name):
    result = BACKWARDS[name]()
    gradient = torch.ones_like(result)
    expect_alert(lambda: result.backward(gradient, retain_graph=True), name)


@pytest.mark.parametrize("name", BACKWARDS)
def test_their_forwards_are_deterministic(name):
    expect_no_alert(BACKWARDS[name])


def places(*shape):
    return torch.zeros(*shape, dtype=torch.long, device=DEVICE)


FORWARDS = {
    "histc": ("_histc_cuda with floating point input", lambda: values(4).histc(bins=3)),
    "histc_out": (
        "_histc_cuda with floating point input",
        lambda: torch.histc(values(4), 3, out=values(3)),
    ),
    "bincount": ("_bincount_cuda", lambda: places(3).bincount(values(3))),
    "median": ("median CUDA with indices output", lambda: values(3).median(0)),
    "median_out": (
        "median CUDA with indices output",
        lambda: torch.median(values(3), 0, out=(values(()), places(()))),
    ),
    "nanmedian": ("median CUDA with indices output", lambda: values(3).nanmedian(0)),
    "put": ("put_", lambda: values(3).put(places(2), values(2))),
    "put_": ("put_", lambda: values(3).put_(places(2), values(2))),
    "put_accumulate": ("put_", lambda: values(3).put(places(2), values(2), accumulate=True)),
    "put_accumulate_": ("put_", lambda: values(3).put_(places(2), values(2), accumulate=True)),
    "index_reduce": (
        "index_reduce_cuda",
        lambda: values(3).index_reduce(0, places(2), values(2), "prod"),
    ),
    "index_reduce_": (
        "index_reduce_cuda",
        lambda: values(3).index_reduce_(0, places(2), values(2), "mean"),
    ),
    "scatter": (
        "scatter_reduce_cuda_kernel",
        lambda: values(3).scatter(0, places(2), values(2), reduce="add"),
    ),
    "scatter_": (
        "scatter_reduce_cuda_kernel",
        lambda: values(3).scatter_(0, places(2), values(2), reduce="multiply"),
    ),
    "scatter_reduce": (
        "scatter_reduce_cuda_prod_",
        lambda: values(3).scatter_reduce(0, places(2), values(2), "prod"),
    ),
    "scatter_reduce_": (
        "scatter_reduce_cuda_prod_",
        lambda: values(3).scatter_reduce_(0, places(2), values(2), "prod"),
    ),
    "nll_loss": (
        "nll_loss2d_forward_out_cuda_template",
        lambda: F.nll_loss(values(2, 3, 5, 5), places(2, 5, 5)),
    ),
    "max_unpool1d": (
        "max_unpooling2d_forward_out",
        lambda: nn.MaxUnpool1d(3, 1)(values(1, 1, 7), places(1, 1, 7)),
    ),
    "max_unpool2d": (
        "max_unpooling2d_forward_out",
        lambda: nn.MaxUnpool2d(3, 1)(values(1, 1, 7, 7), places(1, 1, 7, 7)),
    ),
    "max_unpool3d": (
        "max_unpooling3d_forward_out",
        lambda: nn.MaxUnpool3d(3, 1)(values(1, 1, 7, 7, 7), places(1, 1, 7, 7, 7)),
    ),
}


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("case", FORWARDS)
def test_forwards(case):
    name, call = FORWARDS[case]
    expect_alert(call, name)


DETERMINISTIC = {
    "bincount without weights": lambda: places(3).bincount(),
    "median without indices": lambda: values(3).median(),
    "kthvalue": lambda: values(3).kthvalue(2),
    "cumsum": lambda: values(3).cumsum(0),
    "scatter": lambda: values(3).scatter(0, places(2), values(2)),
    "scatter_add": lambda: values(3).scatter_add(0, places(2), values(2)),
    "scatter_reduce by a sum": lambda: values(3).scatter_reduce(0, places(2), values(2), "sum"),
    "index_add": lambda: values(3).index_add(0, places(2), values(2)),
    "index_copy": lambda: values(3).index_copy(0, places(2), values(2)),
    "index_put": lambda: values(3).index_put((places(2),), values(2)),
    "index_put accumulating": lambda: values(3).index_put((places(2),), values(2), accumulate=True),
    "nll_loss without reduction": lambda: F.nll_loss(
        values(2, 3, 5, 5), places(2, 5, 5), reduction="none"
    ),
    "nll_loss of two dimensions": lambda: F.nll_loss(values(2, 3), places(2)),
    "gather, differentiated": lambda: differentiable(3).gather(0, places(2)).sum().backward(),
    "embedding_bag by a sum, differentiated": lambda: (
        F.embedding_bag(places(2, 3), differentiable(4, 3), mode="sum").sum().backward()
    ),
    "reflecting padding, differentiated": lambda: (
        nn.ReflectionPad2d(1)(differentiable(2, 3, 4, 4)).sum().backward()
    ),
    "replicating padding, differentiated": lambda: (
        nn.ReplicationPad2d(1)(differentiable(2, 3, 4, 4)).sum().backward()
    ),
    "bilinear interpolation, differentiated": lambda: (
        interpolated("bilinear", 1, 2, 4, 4).sum().backward()
    ),
}


@pytest.mark.parametrize("case", DETERMINISTIC)
def test_operators_deterministic_on_a_gpu_run(case):
    expect_no_alert(DETERMINISTIC[case])


def test_nothing_is_written_before_the_error():
    target = values(3)
    with DeterministicGuard(True), pytest.raises(RuntimeError, match="put_ does not have"):
        target.put_(places(2), values(2) * 5, accumulate=True)
    assert target.tolist() == [1.0, 1.0, 1.0]


def test_warning_lets_the_operator_run():
    with (
        DeterministicGuard(True, warn_only=True),
        pytest.warns(UserWarning, match="_bincount_cuda"),
    ):
        assert places(3).bincount(values(3)).tolist() == [3.0]


def test_no_alert_without_deterministic_algorithms(recwarn):
    result = nn.AdaptiveAvgPool2d(3)(differentiable(2, 5, 5))
    result.sum().backward()
    assert values(4).histc(bins=1).tolist() == [4.0]
    assert len(recwarn) == 0
