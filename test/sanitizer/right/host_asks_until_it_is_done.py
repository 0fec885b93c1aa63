"""nothing: the host goes on after query() reports that all work is done."""

import torch

from device import DEVICE, module

side = module.Stream()
with module.stream(side):
    x = torch.ones(1000, device=DEVICE)
while not side.query():
    pass
y = x + 1
side.wait_stream(module.current_stream())
with module.stream(side):
    y.mul_(2)
    done = side.record_event()
while not done.query():
    pass
y.add_(1)
