"""nothing: a side stream's tensor is used on the default stream, and freed after a wait."""

import torch

from device import DEVICE, module

side = module.Stream()
total = torch.zeros((), device=DEVICE)
for step in range(3):
    with module.stream(side):
        x = torch.full((3 << 20,), float(step), device=DEVICE)
    module.current_stream().wait_stream(side)
    total += x.sum()
    side.wait_stream(module.current_stream())
    del x
