"""uninitialised read: one column of a tensor is written, and all columns are compared."""

import torch

from device import DEVICE

x = torch.empty_strided((4, 6), (1, 4), device=DEVICE)  # allocated
x[:, 0] = 1
positive = x > 0  # second
