"""nothing: asynchronous all-reduces of several buckets, with a wait for each."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE

with group_of_one():
    gradients = [torch.ones(100, device=DEVICE) for _ in range(4)]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    for work, gradient in zip(works, gradients, strict=True):
        work.wait()
        gradient.mul_(0.1)
