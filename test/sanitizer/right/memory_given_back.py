"""nothing: memory returns to the device, and another stream gets it."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(3 << 20, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    total = x.sum()
side.synchronize()
del x
module.empty_cache()
with module.stream(side):
    y = torch.zeros(3 << 20, device=DEVICE)
