"""never waited: a pipeline's stage computes before the activation has been received."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
activation = torch.ones(100, device=DEVICE)
if dist.get_rank() == 0:
    dist.send(activation, 1)
else:
    work = dist.irecv(activation, 0)  # first
    y = activation * 2  # second
    work.wait()
module.synchronize()
dist.destroy_process_group()
