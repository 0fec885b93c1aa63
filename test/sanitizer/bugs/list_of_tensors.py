"""race: one of the concatenated tensors comes from a stream without a wait."""

import torch

from device import DEVICE, module

side = module.Stream()
parts = [torch.ones(10, device=DEVICE) for _ in range(3)]
with module.stream(side):
    parts.append(torch.full((10,), 2.0, device=DEVICE))  # first
whole = torch.cat(parts)  # second
