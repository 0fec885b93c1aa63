"""uninitialised read: empty is taken for zeros."""

import torch

from device import DEVICE

x = torch.empty(100, device=DEVICE)  # allocated
total = x.sum()  # second
