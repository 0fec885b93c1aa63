"""out of bounds: the second of two indices is too large."""

import contextlib

import torch

from device import DEVICE

x = torch.zeros(3, 5, device=DEVICE)
rows = torch.tensor([0, -3, 2], device=DEVICE)
columns = torch.tensor([0, -5, 5], device=DEVICE)  # allocated
with contextlib.suppress(IndexError):
    taken = x[rows, columns]  # second
