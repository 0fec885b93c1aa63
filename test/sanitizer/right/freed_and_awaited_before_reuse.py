"""nothing: memory is freed too early, but a wait comes before it is used again."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(3 << 20, device=DEVICE)
place = x.data_ptr()
side.wait_stream(module.current_stream())
with module.stream(side):
    total = x.sum()
del x
module.current_stream().wait_stream(side)
y = torch.zeros(3 << 20, device=DEVICE)
assert y.data_ptr() == place
