"""nothing: a copy between devices is ordered with the current streams of both."""

import torch

from device import DEVICE

x = torch.ones(1000, device=f"{DEVICE}:0")
y = x.to(f"{DEVICE}:1", non_blocking=True)
x.add_(1)
y.mul_(2)
x.copy_(y, non_blocking=True)
y.zero_()
x.add_(1)
