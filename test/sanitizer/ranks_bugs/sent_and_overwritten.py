"""never waited: a pipeline's stage overwrites what it is still sending."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
activation = torch.ones(100, device=DEVICE)
if dist.get_rank() == 0:
    work = dist.isend(activation, 1)  # first
    activation.zero_()  # second
    work.wait()
else:
    dist.recv(activation, 0)
module.synchronize()
dist.destroy_process_group()
