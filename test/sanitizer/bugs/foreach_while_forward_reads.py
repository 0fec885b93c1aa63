"""race: a foreach operator updates weights while one of them is still being read."""

import torch

from device import DEVICE, module

side = module.Stream()
weights = [torch.ones(8, 8, device=DEVICE) for _ in range(4)]
steps = [torch.ones(8, 8, device=DEVICE) for _ in range(4)]
x = torch.ones(2, 8, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = x @ weights[2]  # first
torch._foreach_add_(weights, steps, alpha=-0.1)  # second
