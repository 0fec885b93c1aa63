"""nothing: a tensor is converted to another dtype, and only its written part is read."""

import torch

from device import DEVICE

x = torch.empty(8, 64, device=DEVICE)
x[:, :32] = 1.5
half = x.to(torch.bfloat16)
total = half[:, :32].float().sum()
