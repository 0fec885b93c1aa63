"""race: one of two buffers is refilled while the default stream may still read it."""

import torch

from device import DEVICE, module

copying = module.Stream()
buffers = [torch.zeros(1000, device=DEVICE) for _ in range(2)]
filled = [module.Event() for _ in range(2)]
total = torch.zeros((), device=DEVICE)
copying.wait_stream(module.current_stream())
for step in range(4):
    place = step % 2
    with module.stream(copying):
        buffers[place].fill_(step)  # second
        filled[place].record()
    module.current_stream().wait_event(filled[place])
    total += buffers[place].sum()  # first
