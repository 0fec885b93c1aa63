"""nothing: item() and cpu() make the host wait for the stream that computes the number."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
assert x.sum().item() == 1000
with module.stream(side):
    x.mul_(2)
    values = x.cpu()
x.add_(1)
