"""race: a copy on a side stream reads what is being computed."""

import torch

from device import DEVICE, module

side = module.Stream()
weights, snapshot = torch.ones(1000, device=DEVICE), torch.empty(1000, device=DEVICE)
side.wait_stream(module.current_stream())
weights.sub_(0.1)  # first
with module.stream(side):
    snapshot.copy_(weights)  # second
