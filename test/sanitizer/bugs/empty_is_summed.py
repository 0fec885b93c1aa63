"""uninitialised read: the program uses empty as if it were zeros."""

import torch

from device import DEVICE

x = torch.empty(100, device=DEVICE)  # allocated
total = x.sum()  # second
