"""out of bounds: a custom operator writes behind the second of its two arguments."""

import torch
from custom_operators import fill_second

from device import DEVICE, module

side = module.Stream()
with module.stream(side):
    x = torch.zeros(100, device=DEVICE)
    y = torch.zeros(90, device=DEVICE)  # allocated
    fill_second(x, y, 2.0, 2)  # second
module.current_stream().wait_stream(side)
total = x.sum() + y.sum()
