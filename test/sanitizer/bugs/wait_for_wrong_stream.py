"""race: the consumer waits for the wrong one of two side streams."""

import torch

from device import DEVICE, module

loading, computing = module.Stream(), module.Stream()
with module.stream(loading):
    batch = torch.ones(1000, device=DEVICE)  # first
with module.stream(computing):
    other = torch.ones(1000, device=DEVICE)
module.current_stream().wait_stream(computing)
y = batch + 1  # second
