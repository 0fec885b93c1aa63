"""torch.ldexp returns and raises what the CPU does, and its kernel scales exactly if it can."""

import pytest
import torch

from device import DEVICE

WAYS = {
    "result": torch.ldexp,
    "in place": lambda x, exponent: x.clone().ldexp_(exponent),
    "out": lambda x, exponent: torch.ldexp(x, exponent, out=torch.empty_like(x)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.uint32, torch.uint64])
def test_exponents_refused_by_the_cpu_are_refused(way, dtype):
    x, exponent = torch.ones(3), torch.ones(3, dtype=dtype)
    with pytest.raises(NotImplementedError) as refusal:
        WAYS[way](x, exponent)
    with pytest.raises(NotImplementedError) as here:
        WAYS[way](x.to(DEVICE), exponent.to(DEVICE))
    assert str(here.value).splitlines()[0] == str(refusal.value).splitlines()[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.float32])
def test_numbers_that_need_several_powers_of_two_are_exact(way, dtype):
    x = torch.tensor([1e-38, -3e38, 0.1, float("nan"), float("inf"), 1e-45])
    exponent = torch.tensor([127, -128 if dtype.is_signed else 0, 1, 2, 3, 100]).to(dtype)
    expected = WAYS[way](x, exponent)
    result = WAYS[way](x.to(DEVICE), exponent.to(DEVICE))
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def test_results_beyond_the_range_of_the_power_are_exact():
    x, exponent = torch.tensor([1e-30, 1e30]), torch.tensor([200, -200])
    result = torch.ldexp(x.to(DEVICE), exponent.to(DEVICE))
    assert torch.equal(result.cpu(), torch.ldexp(x, exponent))
    assert result.isfinite().all() and result.all()
