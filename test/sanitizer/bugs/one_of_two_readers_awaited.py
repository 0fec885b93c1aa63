"""race: two streams read, and the writer waits for one of them."""

import torch

from device import DEVICE, module

readers = module.Stream(), module.Stream()
x = torch.ones(1000, device=DEVICE)
for reader in readers:
    reader.wait_stream(module.current_stream())
with module.stream(readers[0]):
    a = x + 1
with module.stream(readers[1]):
    b = x + 2  # first
module.current_stream().wait_stream(readers[0])
x.zero_()  # second
