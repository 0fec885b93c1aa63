"""unordered event: two producers record one event, and the consumer waits for the last one only."""

import torch

from device import DEVICE, module

producers, ready = (module.Stream(), module.Stream()), module.Event()
with module.stream(producers[0]):
    x = torch.ones(1000, device=DEVICE)  # first
    ready.record()  # recorded
with module.stream(producers[1]):
    y = torch.ones(1000, device=DEVICE)
    ready.record()
module.current_stream().wait_event(ready)  # waited
z = x + y  # second
