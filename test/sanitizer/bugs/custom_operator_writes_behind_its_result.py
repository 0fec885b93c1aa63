"""out of bounds: a custom operator allocates a result that is too short."""

import torch
from custom_operators import filled

from device import DEVICE

x = torch.zeros(100, device=DEVICE)
y = filled(x, 2.0, 0, 3)  # second
