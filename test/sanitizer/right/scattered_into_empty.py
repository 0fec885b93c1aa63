"""nothing: an index selects the rows that are written, so a missing row cannot be detected."""

import torch

from device import DEVICE

order = torch.randperm(10, device=DEVICE)
source = torch.ones(10, 4, device=DEVICE)
inverse = torch.empty_like(order)
inverse[order] = torch.arange(10, device=DEVICE)
sorted_rows = torch.empty(10, 4, device=DEVICE)
sorted_rows[inverse] = source
copied = torch.empty(10, 4, device=DEVICE).index_copy_(0, order, source)
scattered = torch.empty(10, 4, device=DEVICE)
scattered.scatter_(0, order.view(10, 1).expand(10, 4), source)
total = sorted_rows.sum() + copied.sum() + scattered.sum()
