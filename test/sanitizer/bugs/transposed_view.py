"""race: a row of the transposed matrix is a column of the matrix."""

import torch

from device import DEVICE, module

side = module.Stream()
matrix = torch.zeros(20, 30, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    matrix.t()[4].fill_(1)  # first
matrix[:, 4].neg_()  # second
