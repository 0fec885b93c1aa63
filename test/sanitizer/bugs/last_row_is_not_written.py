"""uninitialised read: a loop that fills rows stops one too early."""

import torch

from device import DEVICE

table = torch.ones(16, 16, device=DEVICE).new_empty(10, 16)  # allocated
for position in range(9):
    table[position].fill_(position)
product = table @ torch.ones(16, device=DEVICE)  # second
