"""uninitialised read: a normalization layer uses statistics that were never set."""

import torch

from device import DEVICE

mean, variance = torch.zeros(4, device=DEVICE), torch.empty(4, device=DEVICE)
x = torch.ones(8, 4, device=DEVICE)
y = torch.nn.functional.batch_norm(x, mean, variance)  # second
