"""never waited: the gathered weights are used before the gathering is waited for."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE

with group_of_one():
    shard, whole = torch.ones(10, device=DEVICE), torch.empty(10, device=DEVICE)
    work = dist.all_gather_into_tensor(whole, shard, async_op=True)  # first
    y = whole + 1  # second
    work.wait()
