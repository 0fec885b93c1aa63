"""host access: NumPy writes a pinned buffer while it is being copied to the device."""

import torch

from device import DEVICE

buffer = torch.zeros(1 << 16).pin_memory()
array = buffer.numpy()
x = buffer.to(DEVICE, non_blocking=True)  # first
array[:10] = 7  # second
