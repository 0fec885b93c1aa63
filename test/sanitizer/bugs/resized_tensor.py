"""uninitialised read: resize_ grows the tensor, and the new part is not written."""

import torch

from device import DEVICE

x = torch.ones(10, device=DEVICE)
x.resize_(1000)  # allocated
total = x.sum()  # second
