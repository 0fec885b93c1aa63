"""uninitialised read: an accumulator is allocated with empty_like."""

import torch

from device import DEVICE

gradient = torch.ones(100, device=DEVICE)
total = torch.empty_like(gradient)  # allocated
total += gradient  # second
