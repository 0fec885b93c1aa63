"""nothing: two streams use different rows of one table, and only their indices differ."""

import torch

from device import DEVICE, module

side = module.Stream()
table = torch.zeros(100, 8, device=DEVICE)
ones = torch.ones(50, 8, device=DEVICE)
even, odd = torch.arange(0, 100, 2, device=DEVICE), torch.arange(1, 100, 2, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    table.index_add_(0, even, ones)
table.index_put_((odd,), ones)
picked = table[odd]
module.current_stream().wait_stream(side)
total = table.sum()
