"""race: two streams fill one buffer, and neither waits for the other."""

import torch

from device import DEVICE, module

streams = module.Stream(), module.Stream()
buffer = torch.zeros(1000, device=DEVICE)
for stream in streams:
    stream.wait_stream(module.current_stream())
with module.stream(streams[0]):
    buffer.fill_(1)  # first
with module.stream(streams[1]):
    buffer.fill_(2)  # second
