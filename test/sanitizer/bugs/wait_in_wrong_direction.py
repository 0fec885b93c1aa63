"""race: the default stream waits for the side stream, but should be waited for."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)  # first
module.current_stream().wait_stream(side)
with module.stream(side):
    y = x * 2  # second
