"""race: the host asks for the size of a selection whose mask another stream computes."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.arange(100.0, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    mask = x > 50  # first
found = mask.nonzero()  # second
