"""nothing: unwritten bytes are copied, and never used in a computation."""

import torch

from device import DEVICE

x = torch.empty(100, device=DEVICE)
x[:50] = 1
y = x.clone()
z = torch.cat([y, torch.zeros(10, device=DEVICE)])
parts = z.view(10, 11).t().contiguous().t()
there = x.to(f"{DEVICE}:1")
back = there.cpu().to(DEVICE)
total = y[:50].sum() + z[100:].sum() + back[:50].sum() + parts[0].sum()
