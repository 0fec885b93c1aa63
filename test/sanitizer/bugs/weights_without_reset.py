"""uninitialised read: a module moves to the device with to_empty, and its bias is never set."""

import torch

from device import DEVICE

with torch.device("meta"):
    layer = torch.nn.Linear(8, 4)
layer = layer.to_empty(device=DEVICE)  # allocated
with torch.no_grad():
    layer.weight.fill_(0.1)
    y = layer(torch.ones(2, 8, device=DEVICE))  # second
