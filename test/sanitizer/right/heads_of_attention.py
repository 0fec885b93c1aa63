"""nothing: one projection holds queries, keys and values; each stream uses another one."""

import torch

from device import DEVICE, module

side = module.Stream()
projected = torch.ones(2, 10, 3, 4, 8, device=DEVICE)
queries, keys, values = projected.permute(2, 0, 3, 1, 4)
side.wait_stream(module.current_stream())
with module.stream(side):
    values.mul_(0.5)
queries.mul_(8**-0.5)
scores = queries @ keys.transpose(-1, -2)
