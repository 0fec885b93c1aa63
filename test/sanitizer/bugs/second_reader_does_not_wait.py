"""race: a first reader waits for the writer, a second one does not."""

import torch

from device import DEVICE, module

readers = module.Stream(), module.Stream()
x = torch.ones(1000, device=DEVICE)  # first
readers[0].wait_stream(module.current_stream())
with module.stream(readers[0]):
    a = x + 1
with module.stream(readers[1]):
    b = x + 2  # second
