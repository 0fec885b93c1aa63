"""race: a complex tensor is read while its imaginary parts are written."""

import torch

from device import DEVICE, module

side = module.Stream()
z = torch.zeros(100, dtype=torch.complex64, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    torch.view_as_real(z)[:, 1].fill_(1)  # first
power = z.abs()  # second
