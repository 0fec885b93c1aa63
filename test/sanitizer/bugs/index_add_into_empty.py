"""uninitialised read: index_add_ adds to a sum that was allocated with new_empty."""

import torch

from device import DEVICE

rows = torch.ones(4, 8, device=DEVICE)
index = torch.tensor([0, 2, 2, 5], device=DEVICE)
total = rows.new_empty(6, 8)  # allocated
total.index_add_(0, index, rows)  # second
