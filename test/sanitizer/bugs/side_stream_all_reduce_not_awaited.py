"""race: the optimizer does not wait for the side stream on which gradients are reduced."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    side = module.Stream()
    weight, gradient = torch.ones(8, 4, device=DEVICE), torch.ones(8, 4, device=DEVICE)
    side.wait_stream(module.current_stream())
    with module.stream(side):
        dist.all_reduce(gradient)  # first
    weight.sub_(gradient, alpha=0.1)  # second
