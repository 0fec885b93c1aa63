"""out of bounds: the index selects a row that the table does not have."""

import contextlib

import torch

from device import DEVICE

table = torch.ones(4, 3, device=DEVICE)
rows = torch.tensor([0, 4, 1], device=DEVICE)  # allocated
with contextlib.suppress(IndexError):
    taken = torch.index_select(table, 0, rows)  # second
