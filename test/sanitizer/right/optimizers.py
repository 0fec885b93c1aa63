"""nothing: each optimizer, with and without foreach operators."""

import torch

from device import DEVICE

kinds = (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad)
for kind in kinds:
    for foreach in (False, True):
        weights = [torch.ones(8, 8, device=DEVICE, requires_grad=True) for _ in range(3)]
        optimizer = kind(weights, lr=0.1, foreach=foreach)
        for _ in range(2):
            sum((weight**2).sum() for weight in weights).backward()
            optimizer.step()
            optimizer.zero_grad()
