"""nothing: the host waits for all streams of the device."""

import torch

from device import DEVICE, module

streams = [module.Stream() for _ in range(3)]
parts = []
for stream in streams:
    with module.stream(stream):
        parts.append(torch.ones(1000, device=DEVICE))
module.synchronize()
whole = torch.stack(parts).sum()
