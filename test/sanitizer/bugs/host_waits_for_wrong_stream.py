"""race: the host synchronizes with a stream that has nothing to do with it."""

import torch

from device import DEVICE, module

writing, idle = module.Stream(), module.Stream()
with module.stream(writing):
    x = torch.ones(1000, device=DEVICE)  # first
idle.synchronize()
y = x + 1  # second
