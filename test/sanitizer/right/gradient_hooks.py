"""nothing: hooks add gradients on a side stream that waits for the backward pass."""

import torch

from device import DEVICE, module

side = module.Stream()
layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8, device=DEVICE) for _ in range(3)))
bucket = torch.zeros((), device=DEVICE)
side.wait_stream(module.current_stream())


def add_to_bucket(parameter):
    side.wait_stream(module.current_stream())
    with module.stream(side):
        bucket.add_(parameter.grad.sum())


for parameter in layers.parameters():
    parameter.register_post_accumulate_grad_hook(add_to_bucket)
for _ in range(2):
    layers(torch.ones(4, 8, device=DEVICE)).sum().backward()
    module.current_stream().wait_stream(side)
    for parameter in layers.parameters():
        parameter.grad = None
