"""nothing: the pinned buffer is filled again when the event behind its copy was waited for."""

import torch

from device import DEVICE, module

buffer, copied = torch.zeros(1 << 16).pin_memory(), module.Event()
batches = []
for step in range(3):
    copied.synchronize()
    buffer.fill_(step)
    batches.append(buffer.to(DEVICE, non_blocking=True))
    copied.record()
