"""nothing: functional collectives wait by themselves when their result is used."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one
from torch.distributed._functional_collectives import all_reduce

from device import DEVICE

with group_of_one():
    x = torch.ones(100, device=DEVICE)
    y = all_reduce(x, "sum", dist.group.WORLD)
    z = y + 1
