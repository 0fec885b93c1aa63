"""nothing: one stream writes real parts, another one imaginary parts."""

import torch

from device import DEVICE, module

side = module.Stream()
z = torch.zeros(100, dtype=torch.complex64, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    z.real.fill_(1)
z.imag.fill_(2)
