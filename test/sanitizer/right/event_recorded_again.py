"""nothing: an event that is recorded again on its stream also covers the earlier work."""

import torch

from device import DEVICE, module

side, ready = module.Stream(), module.Event()
x = torch.ones(1000, device=DEVICE)
ready.record()
x.mul_(2)
ready.record()
side.wait_event(ready)
with module.stream(side):
    y = x + 1
