"""never waited: the gradients are zeroed while an all-reduce has them."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE

with group_of_one():
    gradients = [torch.ones(100, device=DEVICE) for _ in range(2)]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]  # first
    works[0].wait()
    for gradient in gradients:
        gradient.zero_()  # second
    works[1].wait()
