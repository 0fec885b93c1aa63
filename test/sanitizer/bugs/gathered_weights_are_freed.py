"""use after free: gathered weights are freed while a side stream computes with them."""

import torch
import torch.distributed as dist
from group_of_one import group_of_one

from device import DEVICE, module

with group_of_one():
    computing = module.Stream()
    shard = torch.ones(3 << 20, device=DEVICE)
    whole = torch.empty(3 << 20, device=DEVICE)
    place = whole.data_ptr()
    dist.all_gather_into_tensor(whole, shard)
    computing.wait_stream(module.current_stream())
    with module.stream(computing):
        y = whole.sum()  # first
    del whole  # freed
    gradient = torch.zeros(3 << 20, device=DEVICE)  # second
    assert gradient.data_ptr() == place
