"""nothing: kernels with several results, with sizes that depend on values, with indices."""

import torch

from device import DEVICE

x = torch.tensor([3.0, 1.0, 2.0, 3.0], device=DEVICE)
values, order = torch.sort(x)
found, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
best, place = x.max(0)
median = x.median(0).values
total = values.cumsum(0) + found[inverse] + best + place + median + counts[inverse] + order
histogram = torch.bincount(order, minlength=6) + torch.histc(x, 6)
