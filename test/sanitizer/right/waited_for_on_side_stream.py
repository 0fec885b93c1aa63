"""nothing: a side stream waits for the collective, and the default stream for the side stream."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    side = module.Stream()
    weights = torch.ones(100, device=DEVICE)
    work = dist.broadcast(weights, 0, async_op=True)
    with module.stream(side):
        work.wait()
        weights.mul_(2)
    module.current_stream().wait_stream(side)
    weights.mul_(2)
