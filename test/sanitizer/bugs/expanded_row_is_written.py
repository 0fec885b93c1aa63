"""race: a row is written while a sum reads it broadcast to a matrix."""

import torch

from device import DEVICE, module

side = module.Stream()
row, matrix = torch.ones(16, device=DEVICE), torch.ones(64, 16, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = matrix + row.expand(64, 16)  # first
row[5:6].zero_()  # second
