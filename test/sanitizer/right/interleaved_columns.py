"""nothing: two streams write alternate columns of one matrix."""

import torch

from device import DEVICE, module

side = module.Stream()
matrix = torch.zeros(50, 8, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    matrix[:, ::2].fill_(1)
matrix[:, 1::2].fill_(2)
