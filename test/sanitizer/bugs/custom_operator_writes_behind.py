"""out of bounds: a custom operator writes one element more than its tensor has."""

import torch
from custom_operators import fill_

from device import DEVICE

x = torch.zeros(100, device=DEVICE)  # allocated
fill_(x, 2.0, 0, 1)  # second
