"""nothing: one of two buffers is filled while the other is read, with events in both directions."""

import torch

from device import DEVICE, module

copying = module.Stream()
buffers = [torch.zeros(1000, device=DEVICE) for _ in range(2)]
filled, used = ([module.Event(), module.Event()] for _ in range(2))
total = torch.zeros((), device=DEVICE)
copying.wait_stream(module.current_stream())
for step in range(6):
    place = step % 2
    with module.stream(copying):
        copying.wait_event(used[place])
        buffers[place].fill_(step)
        filled[place].record()
    module.current_stream().wait_event(filled[place])
    total += buffers[place].sum()
    used[place].record()
assert total.item() == 15000
