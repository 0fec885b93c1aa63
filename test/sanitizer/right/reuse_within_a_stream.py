"""nothing: memory is reused on its own stream at once, even while work is pending."""

import torch

from device import DEVICE, module

side = module.Stream()
for stream in (module.current_stream(), side):
    with module.stream(stream):
        for step in range(4):
            x = torch.full((3 << 20,), float(step), device=DEVICE)
            x = x * 2 + 1
