"""nothing: the host waits for an event, and for nothing that comes after it."""

import torch

from device import DEVICE, module

side, ready = module.Stream(), module.Event()
with module.stream(side):
    x = torch.ones(1000, device=DEVICE)
    ready.record()
    y = torch.ones(1000, device=DEVICE)
ready.synchronize()
x.add_(1)
