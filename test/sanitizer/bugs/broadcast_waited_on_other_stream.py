"""never waited: wait() makes the side stream wait, but the default stream uses the result."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    side = module.Stream()
    weights = torch.ones(100, device=DEVICE)
    work = dist.broadcast(weights, 0, async_op=True)  # first
    with module.stream(side):
        work.wait()
    weights.mul_(2)  # second
