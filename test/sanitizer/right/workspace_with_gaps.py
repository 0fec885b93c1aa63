"""nothing: a matrix with a pitch has bytes between its rows, which nobody writes or reads."""

import torch

from device import DEVICE

matrix = torch.empty_strided((10, 6), (16, 1), device=DEVICE)
matrix.fill_(2)
total = matrix.sum() + matrix.mul(3).sum() + (matrix @ matrix.t()).sum()
