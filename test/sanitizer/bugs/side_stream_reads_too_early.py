"""race: a side stream reads what the default stream writes, and does not wait for it."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)  # first
with module.stream(side):
    y = x * 2  # second
