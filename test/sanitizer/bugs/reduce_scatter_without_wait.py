"""never waited: the input of a reduce-scatter is reused while it is read."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE

with group_of_one():
    bucket, shard = torch.ones(64, device=DEVICE), torch.empty(64, device=DEVICE)
    work = dist.reduce_scatter_tensor(shard, bucket, async_op=True)  # first
    bucket.zero_()  # second
    work.wait()
