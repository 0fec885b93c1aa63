"""nothing: to synchronize the device is to wait for the collective as well."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    weights = torch.ones(100, device=DEVICE)
    work = dist.all_reduce(weights, async_op=True)
    module.synchronize()
    weights.mul_(2)
