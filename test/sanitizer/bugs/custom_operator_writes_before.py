"""out of bounds: a custom operator begins to write one element too early."""

import torch
from custom_operators import fill_

from device import DEVICE

x = [torch.zeros(100, device=DEVICE) for _ in range(8)]  # allocated
x.sort(key=torch.Tensor.data_ptr)
fill_(x[4], 2.0, 1, 0)  # second
