"""never waited: ranks reduce gradients asynchronously, and one of them steps too early."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
gradient = torch.ones(100, device=DEVICE)
work = dist.all_reduce(gradient, async_op=True)  # first
if dist.get_rank() == 1:
    gradient.mul_(0.1)  # second
work.wait()
module.synchronize()
dist.destroy_process_group()
