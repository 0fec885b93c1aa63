"""nothing: resize_ grows a tensor, and the new part is filled; shrinking needs nothing."""

import torch

from device import DEVICE

x = torch.ones(10, device=DEVICE)
x.resize_(1000)
x[10:].fill_(2)
total = x.sum()
x.resize_(20)
total += x.sum()
y = torch.zeros(0, device=DEVICE)
torch.add(x, 1, out=y)
total += y.sum()
