"""race: the default stream overwrites what a side stream is still sending to another device."""

import torch

from device import DEVICE, module

side = module.Stream(device=0)
x = torch.ones(1000, device=f"{DEVICE}:0")
y = torch.zeros(1000, device=f"{DEVICE}:1")
side.wait_stream(module.current_stream())
with module.stream(side):
    y.copy_(x, non_blocking=True)  # first
x.add_(1)  # second
