"""host access: the next batch is written to pinned memory while a replay may copy the last one."""

import torch

from device import DEVICE, module

batch = torch.ones(1000).pin_memory()
x = torch.empty(1000, device=DEVICE)
graph = module.CUDAGraph()
with module.graph(graph):
    x.copy_(batch, non_blocking=True)  # first
    y = x * 2
graph.replay()
batch.fill_(2)  # second
