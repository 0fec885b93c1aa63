"""host access: the host zeroes a pinned buffer into which results are still being copied."""

import torch

from device import DEVICE

x = torch.ones(1 << 16, device=DEVICE)
result = torch.zeros(1 << 16).pin_memory()
result.copy_(x, non_blocking=True)  # first
result.zero_()  # second
