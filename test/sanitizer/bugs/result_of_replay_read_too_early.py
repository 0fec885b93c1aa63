"""race: the result of a replay is read on a stream that does not wait for it."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
graph = module.CUDAGraph()
with module.graph(graph):
    y = x.exp().sum(0)
    x.add_(1)  # first
graph.replay()
with module.stream(side):
    print(x.mean())  # second
