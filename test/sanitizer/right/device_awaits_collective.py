"""nothing: synchronizing the device also waits for the collective."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    weights = torch.ones(100, device=DEVICE)
    work = dist.all_reduce(weights, async_op=True)
    module.synchronize()
    weights.mul_(2)
