"""uninitialised read: resize_ makes room that nobody fills."""

import torch

from device import DEVICE

x = torch.ones(10, device=DEVICE)
x.resize_(1000)  # allocated
total = x.sum()  # second
