"""nothing: per-sample gradients with torch.func, which batches operators."""

import torch
from torch.func import functional_call, grad, vmap

from device import DEVICE

layer = torch.nn.Linear(8, 1, device=DEVICE)
weights = {name: value.detach() for name, value in layer.named_parameters()}


def loss(weights, x, y):
    return (functional_call(layer, weights, (x,)) - y).square().sum()


x, y = torch.ones(16, 8, device=DEVICE), torch.zeros(16, 1, device=DEVICE)
gradients = vmap(grad(loss), (None, 0, 0))(weights, x, y)
norm = gradients["weight"].flatten(1).norm(dim=1)
