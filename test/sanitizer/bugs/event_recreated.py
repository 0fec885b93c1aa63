"""race: the program replaces the event between its recording and the wait."""

import torch

from device import DEVICE, module

side, ready = module.Stream(), module.Event()
x = torch.ones(1000, device=DEVICE)  # first
ready.record()
ready = module.Event()
side.wait_event(ready)
with module.stream(side):
    y = x * 2  # second
