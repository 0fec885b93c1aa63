"""nothing: a side stream waits before it reads, the default stream before it uses the result."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = x * 2
module.current_stream().wait_stream(side)
x.add_(y)
