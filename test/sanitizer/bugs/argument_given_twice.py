"""race: a tensor that is two arguments of an operator was written on another stream."""

import torch

from device import DEVICE, module

side = module.Stream()
matrix = torch.zeros(3, 3, device=DEVICE)
with module.stream(side):
    vector = torch.arange(1.0, 4.0, device=DEVICE)  # first
outer = torch.addr(matrix, vector, vector)  # second
