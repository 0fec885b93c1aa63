"""race: gradients are zeroed for the next step while a side stream sums them."""

import torch

from device import DEVICE, module

reducing = module.Stream()
gradients = [torch.ones(100, device=DEVICE) for _ in range(2)]
total = torch.zeros(100, device=DEVICE)
reducing.wait_stream(module.current_stream())
with module.stream(reducing):
    for gradient in gradients:
        total.add_(gradient)  # first
for gradient in gradients:
    gradient.zero_()  # second
