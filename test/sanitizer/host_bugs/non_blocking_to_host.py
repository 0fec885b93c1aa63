"""host access: to("cpu", non_blocking=True) returns before the numbers are there."""

import torch

from device import DEVICE

x = torch.ones(1 << 16, device=DEVICE)
y = x.to("cpu", non_blocking=True)  # first
total = y.sum()  # second
