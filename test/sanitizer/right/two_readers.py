"""nothing: two streams read one tensor at the same time."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = x * 2
z = x + 1
