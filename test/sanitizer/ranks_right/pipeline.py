"""nothing: two stages send activations forward and gradients back, and wait for each."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
rank = dist.get_rank()
module.set_device(rank)
layer = torch.nn.Linear(8, 8, device=DEVICE)
for _ in range(3):
    if rank == 0:
        x = layer(torch.ones(4, 8, device=DEVICE))
        gradient = torch.empty_like(x)
        works = [dist.isend(x.detach(), 1), dist.irecv(gradient, 1)]
        for work in works:
            work.wait()
        x.backward(gradient)
    else:
        x = torch.empty(4, 8, device=DEVICE)
        dist.irecv(x, 0).wait()
        layer(x.requires_grad_()).sum().backward()
        dist.send(x.grad, 0)
module.synchronize()
dist.destroy_process_group()
