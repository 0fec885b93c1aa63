"""race: a copy that a graph does is not ordered before a kernel of another stream."""

import torch

from device import DEVICE, module

side = module.Stream()
x, y = torch.ones(1000, device=DEVICE), torch.zeros(1000, device=DEVICE)
graph = module.CUDAGraph()
with module.graph(graph):
    y.copy_(x)  # first
inner = graph
outer = module.CUDAGraph()
with module.graph(outer):
    inner.replay()
outer.replay()
with module.stream(side):
    y.mul_(2)  # second
