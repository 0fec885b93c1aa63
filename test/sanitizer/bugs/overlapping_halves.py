"""race: two streams write parts of one tensor that overlap in a few elements."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.zeros(100, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    x[40:].fill_(1)  # first
x[:60].fill_(2)  # second
