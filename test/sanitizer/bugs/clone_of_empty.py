"""uninitialised read: bytes that nobody wrote are copied, and computed with later."""

import torch

from device import DEVICE

x = torch.empty(100, device=DEVICE)
y = x.clone()
z = torch.cat([y, torch.ones(3, device=DEVICE)])
total = z.sqrt()  # second
