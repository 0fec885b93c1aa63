"""race: in a chain of streams one link waits for the wrong event."""

import torch

from device import DEVICE, module

streams = [module.Stream() for _ in range(5)]
events = [module.Event() for _ in range(5)]
x = torch.ones(1000, device=DEVICE)  # first
events[0].record()
for position in range(1, 5):
    waits_for = position - 1 if position != 3 else 4
    streams[position].wait_event(events[waits_for])
    events[position].record(streams[position])
with module.stream(streams[4]):
    x.mul_(2)  # second
