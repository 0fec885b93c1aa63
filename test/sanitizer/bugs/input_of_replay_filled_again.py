"""race: the next batch is copied into a graph's input while a replay may read it."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.ones(1000, device=DEVICE)
graph = module.CUDAGraph()
with module.graph(graph):
    y = x * 2  # first
graph.replay()
side.wait_stream(module.current_stream())
with module.stream(side):
    x.fill_(2)
module.current_stream().wait_stream(side)
graph.replay()
with module.stream(side):
    x.fill_(3)  # second
