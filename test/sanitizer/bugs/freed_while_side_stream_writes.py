"""use after free: a result is freed before the side stream has computed it."""

import torch

from device import DEVICE, module

side = module.Stream()
result = torch.zeros(3 << 20, device=DEVICE)
place = result.data_ptr()
side.wait_stream(module.current_stream())
with module.stream(side):
    result.fill_(7)  # first
del result  # freed
y = torch.zeros(3 << 20, device=DEVICE)  # second
assert y.data_ptr() == place
