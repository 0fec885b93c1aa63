"""nothing: autograd runs the backward pass on the stream of the forward pass, and orders it."""

import torch

from device import DEVICE, module

side = module.Stream()
weight = torch.ones(8, 8, device=DEVICE, requires_grad=True)
x = torch.ones(4, 8, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = torch.tanh(x @ weight)
module.current_stream().wait_stream(side)
y.sum().backward()
weight.grad.mul_(0.1)
