"""race: a wait for an event that was never recorded waits for nothing."""

import torch

from device import DEVICE, module

side, ready = module.Stream(), module.Event()
x = torch.ones(1000, device=DEVICE)  # first
side.wait_event(ready)
with module.stream(side):
    y = x * 2  # second
