"""uninitialised read: unwritten bytes are copied, and the copy is used in a computation."""

import torch

from device import DEVICE

x = torch.empty(100, device=DEVICE)
y = x.clone()
z = torch.cat([y, torch.ones(3, device=DEVICE)])
total = z.sqrt()  # second
