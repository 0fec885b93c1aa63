"""nothing: the host waits for a stream, and submits to the other one afterwards."""

import torch

from device import DEVICE, module

side = module.Stream()
with module.stream(side):
    x = torch.ones(1000, device=DEVICE)
side.synchronize()
x.add_(1)
