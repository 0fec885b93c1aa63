"""race: the default stream writes in place what a side stream may still read."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    total = x.sum()  # first
x.add_(1)  # second
