"""race: the default stream reads the result of a side stream, and does not wait for it."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = x * 2  # first
z = y + 1  # second
