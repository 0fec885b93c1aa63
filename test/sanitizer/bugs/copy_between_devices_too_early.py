"""race: a side stream sends to another device what the default stream is still writing."""

import torch

from device import DEVICE, module

side = module.Stream(device=0)
x = torch.ones(1000, device=f"{DEVICE}:0")  # first
with module.stream(side):
    y = x.to(f"{DEVICE}:1", non_blocking=True)  # second
