"""race: cpu() waits for the current stream, which is not the one that computes the values."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(100, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = x.exp()  # first
values = y.cpu()  # second
