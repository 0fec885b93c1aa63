"""never waited: an asynchronous all-reduce is forgotten, and its result used."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE

with group_of_one():
    gradient = torch.ones(1000, device=DEVICE)
    work = dist.all_reduce(gradient, async_op=True)  # first
    step = gradient * 0.1  # second
    work.wait()
