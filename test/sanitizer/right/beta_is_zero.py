"""nothing: with beta=0, a product does not read the tensor that it is added to."""

import torch

from device import DEVICE

a, b = torch.ones(2, 8, 8, device=DEVICE), torch.ones(2, 8, 8, device=DEVICE)
scores = torch.baddbmm(torch.empty(2, 8, 8, device=DEVICE), a, b, beta=0, alpha=0.5)
product = torch.addmm(torch.empty(8, 8, device=DEVICE), a[0], b[0], beta=0)
vector = torch.addmv(torch.empty(8, device=DEVICE), a[0], b[0, 0], beta=0)
total = scores.sum() + product.sum() + vector.sum()
