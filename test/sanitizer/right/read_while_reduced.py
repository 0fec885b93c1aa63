"""nothing: another stream reads a tensor that a collective only reads."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE

with group_of_one():
    shard, whole = torch.ones(64, device=DEVICE), torch.empty(64, device=DEVICE)
    work = dist.all_gather_into_tensor(whole, shard, async_op=True)
    norm = shard.norm()
    work.wait()
    total = whole.sum() + norm
