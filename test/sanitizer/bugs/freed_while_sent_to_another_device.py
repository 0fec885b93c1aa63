"""use after free: a tensor is freed while a side stream sends it to another device."""

import torch

from device import DEVICE, module

side = module.Stream(device=0)
x = torch.ones(3 << 20, device=f"{DEVICE}:0")
place = x.data_ptr()
side.wait_stream(module.current_stream())
with module.stream(side):
    there = x.to(f"{DEVICE}:1", non_blocking=True)  # first
del x  # freed
y = torch.zeros(3 << 20, device=f"{DEVICE}:0")  # second
assert y.data_ptr() == place
