"""nothing: DistributedDataParallel reduces gradients while the backward pass goes on."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
layers = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))).to(DEVICE)
network = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.004)
optimizer = torch.optim.AdamW(network.parameters())
for _ in range(3):
    optimizer.zero_grad()
    network(torch.ones(8, 32, device=DEVICE)).square().mean().backward()
    optimizer.step()
module.synchronize()
dist.destroy_process_group()
