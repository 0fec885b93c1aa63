"""race: gradients are reduced on a side stream that does not wait for the backward pass."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    side = module.Stream()
    weight = torch.ones(8, 4, device=DEVICE, requires_grad=True)
    x = torch.ones(2, 8, device=DEVICE)
    (x @ weight).sum().backward()  # first-forward
    with module.stream(side):
        dist.all_reduce(weight.grad)  # second
