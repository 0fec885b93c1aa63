"""nothing: memory is used again on its own stream at once, whether or not work is done."""

import torch

from device import DEVICE, module

side = module.Stream()
for stream in (module.current_stream(), side):
    with module.stream(stream):
        for step in range(4):
            x = torch.full((3 << 20,), float(step), device=DEVICE)
            x = x * 2 + 1
