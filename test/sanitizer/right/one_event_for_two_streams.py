"""nothing: two streams wait for one event, and read."""

import torch

from device import DEVICE, module

readers = module.Stream(), module.Stream()
x = torch.ones(1000, device=DEVICE)
written = module.current_stream().record_event()
for reader in readers:
    reader.wait_event(written)
with module.stream(readers[0]):
    y = x + 1
with module.stream(readers[1]):
    z = x + 2
