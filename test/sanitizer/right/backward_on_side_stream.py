"""nothing: backward() is called on a side stream, and its caller's stream waits for gradients."""

import torch

from device import DEVICE, module

side = module.Stream()
weight = torch.ones(8, 8, device=DEVICE, requires_grad=True)
loss = torch.tanh(torch.ones(4, 8, device=DEVICE) @ weight).sum()
side.wait_stream(module.current_stream())
with module.stream(side):
    loss.backward()
    weight.grad.mul_(0.1)
module.current_stream().wait_stream(side)
with torch.no_grad():
    weight.sub_(weight.grad)
