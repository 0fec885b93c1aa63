"""nothing: two streams write the two halves of one tensor."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.zeros(100, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    x[50:].fill_(1)
x[:50].fill_(2)
