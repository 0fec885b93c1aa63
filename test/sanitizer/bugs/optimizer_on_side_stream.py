"""race: the optimizer steps on a side stream, and does not wait for the gradients."""

import torch

from device import DEVICE, module

side = module.Stream()
weights = [torch.ones(8, 8, device=DEVICE, requires_grad=True) for _ in range(3)]
optimizer = torch.optim.SGD(weights, lr=0.1, foreach=True)
side.wait_stream(module.current_stream())
x = torch.ones(4, 8, device=DEVICE)
loss = sum((x @ weight).sum() for weight in weights)  # first-forward
loss.backward()
with module.stream(side):
    optimizer.step()  # second
