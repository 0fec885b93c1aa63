"""race: a branch of a network runs on a side stream, and its result is used without a wait."""

import torch

from device import DEVICE, module

side = module.Stream()
left, right = (torch.nn.Linear(8, 8, device=DEVICE) for _ in range(2))
x = torch.ones(4, 8, device=DEVICE)
side.wait_stream(module.current_stream())
with torch.no_grad():
    with module.stream(side):
        a = left(x)  # first
    b = right(x)
    y = a * b  # second
