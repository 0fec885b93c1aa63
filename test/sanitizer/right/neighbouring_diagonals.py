"""nothing: neighbouring diagonals have no element in common."""

import torch

from device import DEVICE, module

side = module.Stream()
matrix = torch.zeros(20, 20, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    matrix.diagonal().fill_(1)
matrix.diagonal(1).fill_(2)
matrix.diagonal(-1).fill_(3)
