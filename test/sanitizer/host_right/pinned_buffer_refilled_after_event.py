"""nothing: the pinned buffer is refilled after a wait for the event that follows its copy."""

import torch

from device import DEVICE, module

buffer, copied = torch.zeros(1 << 16).pin_memory(), module.Event()
batches = []
for step in range(3):
    copied.synchronize()
    buffer.fill_(step)
    batches.append(buffer.to(DEVICE, non_blocking=True))
    copied.record()
