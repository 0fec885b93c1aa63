"""nothing: without async_op the current stream waits by itself, and so does a side stream."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    side = module.Stream()
    gradient = torch.ones(100, device=DEVICE)
    dist.all_reduce(gradient)
    gradient.mul_(0.1)
    side.wait_stream(module.current_stream())
    with module.stream(side):
        dist.all_reduce(gradient)
    module.current_stream().wait_stream(side)
    gradient.mul_(0.1)
