"""out of bounds: a value is scattered to a column that does not exist."""

import contextlib

import torch

from device import DEVICE

x = torch.zeros(3, 5, device=DEVICE)
columns = torch.tensor([[0], [7], [1]], device=DEVICE)  # allocated
with contextlib.suppress(IndexError, RuntimeError):
    x.scatter_(1, columns, 1.0)  # second
