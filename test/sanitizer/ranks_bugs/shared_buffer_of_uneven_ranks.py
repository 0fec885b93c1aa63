"""uninitialised read: each rank writes less than its part, and all gathered parts are summed."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
part = torch.empty(100, device=DEVICE)
part[:60] = 1
parts = torch.zeros(200, device=DEVICE)
dist.all_gather_into_tensor(parts, part)
total = parts.sum()  # second
module.synchronize()
dist.destroy_process_group()
