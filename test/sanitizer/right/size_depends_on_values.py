"""nothing: nonzero and masks make the host wait for the stream, because they need a size."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.arange(100.0, device=DEVICE)
large = x[x > 50]
with module.stream(side):
    x.mul_(2)
    places = (x > 20).nonzero()
x.add_(1)
large.add_(1)
