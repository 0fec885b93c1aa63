"""use after free: a tensor is freed while a side stream reads it, and its memory is reused."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(3 << 20, device=DEVICE)
place = x.data_ptr()
side.wait_stream(module.current_stream())
with module.stream(side):
    total = x.sum()  # first
del x  # freed
y = torch.zeros(3 << 20, device=DEVICE)  # second
assert y.data_ptr() == place
