"""race: the default stream waits for the side stream, where it should be the other way round."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)  # first
module.current_stream().wait_stream(side)
with module.stream(side):
    y = x * 2  # second
