"""race: the wait comes before the work that it should wait for."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
side.wait_stream(module.current_stream())
x.mul_(3)  # first
with module.stream(side):
    y = x * 2  # second
