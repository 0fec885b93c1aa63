"""race: a hook adds gradients on a side stream that does not wait for the backward pass."""

import torch

from device import DEVICE, module

side = module.Stream()
weight = torch.ones(8, 4, device=DEVICE, requires_grad=True)
x = torch.ones(16, 8, device=DEVICE)
bucket = torch.zeros(8, 4, device=DEVICE)
side.wait_stream(module.current_stream())


def add_to_bucket(gradient):
    with module.stream(side):
        bucket.add_(gradient)  # second


weight.register_hook(add_to_bucket)
(x @ weight).sum().backward()  # first-forward
