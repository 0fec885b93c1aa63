"""host access: NumPy reads a buffer while the device still copies into it."""

import torch

from device import DEVICE

x = torch.ones(1 << 16, device=DEVICE)
result = torch.empty(1 << 16).pin_memory()
result.copy_(x, non_blocking=True)  # first
first = result.numpy()[0] + 1  # second
