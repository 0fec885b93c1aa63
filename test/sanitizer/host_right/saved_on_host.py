"""nothing: tensors that autograd saves are offloaded to pinned memory, and come back."""

import torch

from device import DEVICE

weight = torch.ones(32, 32, device=DEVICE, requires_grad=True)
x = torch.ones(16, 32, device=DEVICE)
with torch.autograd.graph.save_on_cpu(pin_memory=True):
    loss = torch.tanh(x @ weight).pow(2).sum()
loss.backward()
assert weight.grad.isfinite().all()
