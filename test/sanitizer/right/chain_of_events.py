"""nothing: a chain of waits leads through ten streams."""

import torch

from device import DEVICE, module

streams = [module.Stream() for _ in range(10)]
x = torch.ones(1000, device=DEVICE)
event = module.current_stream().record_event()
for stream in streams:
    stream.wait_event(event)
    event = stream.record_event()
with module.stream(streams[-1]):
    x.mul_(2)
