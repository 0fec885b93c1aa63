"""nothing: a matrix has unused bytes between its rows."""

import torch

from device import DEVICE

matrix = torch.empty_strided((10, 6), (16, 1), device=DEVICE)
matrix.fill_(2)
total = matrix.sum() + matrix.mul(3).sum() + (matrix @ matrix.t()).sum()
