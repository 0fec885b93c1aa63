"""race: two streams train one normalization layer, and both write its running statistics."""

import torch

from device import DEVICE, module

side = module.Stream()
layer = torch.nn.BatchNorm1d(4, affine=False, device=DEVICE)
layer.num_batches_tracked = None
a, b = torch.ones(16, 4, device=DEVICE), torch.ones(16, 4, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    y = layer(a)  # first
z = layer(b)  # second
