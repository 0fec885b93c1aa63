"""torch.kaiser_window, which PyTorch computes by a function of the device."""

import pytest
import torch
from torch.testing import assert_close

from device import DEVICE


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("beta", [0.0, 12.0, 30.0])
def test_window_is_that_of_the_cpu_rounded_once(dtype, periodic, beta):
    for length in (0, 1, 2, 50, 255):  # bfloat16 has no larger numbers without gaps
        actual = torch.kaiser_window(length, periodic, beta, dtype=dtype, device=DEVICE)
        wide = torch.kaiser_window(length, periodic, beta, dtype=torch.float64)
        assert (actual.device.type, actual.dtype) == (DEVICE, dtype)
        assert_close(actual.cpu(), wide.to(dtype))


def test_window_is_computed_where_it_is_asked_for():
    window = torch.kaiser_window(9, device=f"{DEVICE}:1")
    assert window.device.index == 1
    assert_close(window.cpu(), torch.kaiser_window(9))
