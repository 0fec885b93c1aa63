"""race: an optimizer in the backward pass steps on a side stream that waits for nothing."""

import torch

from device import DEVICE, module

side = module.Stream()
layer = torch.nn.Linear(8, 4, bias=False, device=DEVICE)
side.wait_stream(module.current_stream())


def step(weight):
    with torch.no_grad(), module.stream(side):
        weight.data.sub_(weight.grad, alpha=0.1)  # second


layer.weight.register_post_accumulate_grad_hook(step)
x = torch.ones(16, 8, device=DEVICE)
y = layer(x)  # first-forward
y.sum().backward()
