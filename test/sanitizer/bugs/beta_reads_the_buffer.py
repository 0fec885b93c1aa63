"""uninitialised read: addmm adds to its first argument unless beta is 0."""

import torch

from device import DEVICE

a, b = torch.ones(8, 8, device=DEVICE), torch.ones(8, 8, device=DEVICE)
buffer = torch.empty(8, 8, device=DEVICE)  # allocated
y = torch.addmm(buffer, a, b, beta=0.5)  # second
