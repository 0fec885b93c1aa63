"""race: each rank gathers a tensor that its side stream is still computing."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
side = module.Stream()
x = torch.ones(100, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    mine = x * dist.get_rank()  # first
parts = torch.zeros(200, device=DEVICE)
dist.all_gather_into_tensor(parts, mine)  # second
module.synchronize()
dist.destroy_process_group()
