"""nothing: a model's parts are on two devices, and autograd goes back over the copies."""

import torch

from device import DEVICE

first = torch.nn.Linear(8, 8).to(f"{DEVICE}:0")
second = torch.nn.Linear(8, 8).to(f"{DEVICE}:1")
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1, foreach=True)
for _ in range(2):
    hidden = torch.relu(first(torch.ones(4, 8, device=f"{DEVICE}:0")))
    loss = second(hidden.to(f"{DEVICE}:1")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    assert loss.isfinite()
