"""race: a side stream averages weights while the optimizer goes on to the next step."""

import torch

from device import DEVICE, module

side = module.Stream()
weight, average = torch.ones(100, device=DEVICE), torch.ones(100, device=DEVICE)
for _ in range(3):
    weight.sub_(0.1)  # second
    side.wait_stream(module.current_stream())
    with module.stream(side):
        average.lerp_(weight, 0.1)  # first
