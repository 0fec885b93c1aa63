"""nothing: memory from empty is written completely, in many ways, before it is read."""

import torch

from device import DEVICE

source = torch.ones(10, 10, device=DEVICE)
filled = torch.empty(10, 10, device=DEVICE).fill_(1)
copied = torch.empty_like(source).copy_(source)
drawn = torch.empty(10, 10, device=DEVICE).uniform_()
given = torch.mul(source, 2, out=torch.empty(10, 10, device=DEVICE))
product = torch.mm(source, source, out=torch.empty(10, 10, device=DEVICE))
ranged = torch.arange(100.0, out=torch.empty(100, device=DEVICE)).view(10, 10)
zeroed = torch.empty_strided((10, 10), (1, 10), device=DEVICE).zero_()
stacked = torch.cat([source[:5], source[5:]], out=torch.empty(10, 10, device=DEVICE))
total = filled + copied + drawn + given + product + ranged + zeroed + stacked
