"""race: one stream adds to some rows of a table, another to all."""

import torch

from device import DEVICE, module

side = module.Stream()
table = torch.zeros(100, device=DEVICE)
index, ones = torch.arange(50, device=DEVICE), torch.ones(50, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    table.scatter_add_(0, index, ones)  # first
table.add_(1)  # second
