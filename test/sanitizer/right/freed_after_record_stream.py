"""nothing: record_stream keeps memory from being used again before the side stream is done."""

import torch

from device import DEVICE, module

side = module.Stream()
totals = []
for step in range(4):
    x = torch.full((3 << 20,), float(step), device=DEVICE)
    side.wait_stream(module.current_stream())
    with module.stream(side):
        totals.append(x.sum())
    x.record_stream(side)
    del x
