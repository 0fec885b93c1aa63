"""nothing: FSDP2 gathers weights and scatters gradients on streams of its own."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
network = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(3))).to(DEVICE)
for layer in network:
    fully_shard(layer)
fully_shard(network)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    network(torch.ones(8, 32, device=DEVICE)).square().mean().backward()
    optimizer.step()
module.synchronize()
dist.destroy_process_group()
