"""race: the event is recorded before the work that the other stream must wait for."""

import torch

from device import DEVICE, module

side, ready = module.Stream(), module.Event()
x = torch.zeros(1000, device=DEVICE)
ready.record()
x.normal_()  # first
side.wait_event(ready)
with module.stream(side):
    y = x * 2  # second
