"""nothing: one process trains a replica on each of two devices, and sums gradients by copies."""

import torch

from device import DEVICE

torch.manual_seed(0)
layers = [torch.nn.Linear(8, 4).to(f"{DEVICE}:{index}") for index in range(2)]
for _ in range(2):
    for index, layer in enumerate(layers):
        layer(torch.ones(16, 8, device=f"{DEVICE}:{index}")).square().sum().backward()
    for first, second in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        first.grad.add_(second.grad.to(first.device))
        with torch.no_grad():
            first.sub_(first.grad, alpha=0.01)
            second.copy_(first)
        first.grad = second.grad = None
