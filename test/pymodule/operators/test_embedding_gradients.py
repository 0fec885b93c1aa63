"""Gradients of embeddings in half precision are added up in float32 and rounded once."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from device import DEVICE

HALFS = [torch.float16, torch.bfloat16]
ROWS, COUNT = 5, 5000


def places():
    """Return indices in which each row occurs about a thousand times."""
    return torch.randint(ROWS, (COUNT,), generator=torch.Generator().manual_seed(0))


def gradient_of_rows(function, *shape, dtype, device):
    table = torch.zeros(ROWS, 4, dtype=dtype, device=device, requires_grad=True)
    output = function(table, device)
    assert output.shape == shape
    upper = torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    output.backward(upper.to(device))
    return table.grad.cpu()


def check(function, *shape, dtype):
    """Compare with float32. Additions in half precision stop at a few hundred."""
    actual = gradient_of_rows(function, *shape, dtype=dtype, device=DEVICE)
    upper = torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(dtype).float()
    table = torch.zeros(ROWS, 4, requires_grad=True)
    function(table, "cpu").backward(upper)
    assert actual.dtype == dtype
    assert torch.equal(actual, table.grad.to(dtype))


@pytest.mark.parametrize("dtype", HALFS)
@pytest.mark.parametrize("by_frequency", [False, True])
def test_gradients_of_a_row_are_summed_in_float32(dtype, by_frequency):
    check(
        lambda table, device: F.embedding(
            places().to(device), table, scale_grad_by_freq=by_frequency
        ),
        *(COUNT, 4),
        dtype=dtype,
    )


@pytest.mark.parametrize("dtype", HALFS)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_bags_are_summed_in_float32(dtype, mode):
    check(
        lambda table, device: F.embedding_bag(
            places().to(device).view(-1, 2), table, mode=mode, padding_idx=3
        ),
        *(COUNT // 2, 4),
        dtype=dtype,
    )


@pytest.mark.parametrize("dtype", HALFS)
def test_weighted_gradients_of_bags_are_summed_in_float32(dtype):
    weights = torch.rand(COUNT // 2, 2, generator=torch.Generator().manual_seed(2)).to(dtype)

    def bags(table, device):
        own = weights.to(device, table.dtype)
        return F.embedding_bag(
            places().to(device).view(-1, 2), table, mode="sum", per_sample_weights=own
        )

    check(bags, COUNT // 2, 4, dtype=dtype)


def test_gradients_of_maxima_have_the_bits_of_the_cpu():
    for dtype in HALFS:

        def bags(table, device):
            return F.embedding_bag(places().to(device).view(-1, 2), table, mode="max")

        shape = (COUNT // 2, 4)
        expected = gradient_of_rows(bags, *shape, dtype=dtype, device="cpu")
        assert_close(gradient_of_rows(bags, *shape, dtype=dtype, device=DEVICE), expected)


def test_sparse_gradients_stay_sparse():
    table = torch.ones(ROWS, 4, dtype=torch.float16, device=DEVICE, requires_grad=True)
    bags = places()[:6].to(DEVICE).view(-1, 2)
    F.embedding_bag(bags, table, mode="sum", sparse=True).sum().backward()
    assert table.grad.is_sparse
    assert table.grad.dtype == torch.float16
