"""race: two streams wait for a third one; then one reads and the other writes."""

import torch

from device import DEVICE, module

branches = module.Stream(), module.Stream()
x = torch.ones(1000, device=DEVICE)
written = module.current_stream().record_event()
for branch in branches:
    branch.wait_event(written)
with module.stream(branches[0]):
    y = x + 1  # first
with module.stream(branches[1]):
    x.sqrt_()  # second
