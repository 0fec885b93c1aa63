"""host access: a pinned buffer is filled again while it is being copied to the device."""

import torch

from device import DEVICE

buffer = torch.zeros(1 << 16).pin_memory()
batches = []
for step in range(2):
    buffer.fill_(step)  # second
    batches.append(buffer.to(DEVICE, non_blocking=True))  # first
