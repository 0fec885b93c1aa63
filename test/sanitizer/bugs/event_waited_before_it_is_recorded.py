"""race: the wait is submitted before the first recording, so it has no effect."""

import torch

from device import DEVICE, module

side, ready = module.Stream(), module.Event()
x = torch.ones(1000, device=DEVICE)  # first
side.wait_event(ready)
ready.record()
with module.stream(side):
    y = x * 2  # second
