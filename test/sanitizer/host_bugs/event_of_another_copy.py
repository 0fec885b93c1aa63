"""host access: the host waits for the copy before the one whose result it reads."""

import torch

from device import DEVICE, module

x, y = torch.ones(1 << 16, device=DEVICE), torch.ones(1 << 16, device=DEVICE)
a, b = torch.empty(1 << 16).pin_memory(), torch.empty(1 << 16).pin_memory()
a.copy_(x, non_blocking=True)
copied = module.current_stream().record_event()
b.copy_(y, non_blocking=True)  # first
copied.synchronize()
total = a.sum() + b.sum()  # second
