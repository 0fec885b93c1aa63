"""use after free: a loop rebinds the name of a tensor that a side stream saves."""

import torch

from device import DEVICE, module

saving = module.Stream()
saved = [torch.zeros(3 << 20, device=DEVICE) for _ in range(3)]
saving.wait_stream(module.current_stream())
for step in range(3):
    state = None
    state = torch.full((3 << 20,), float(step), device=DEVICE)  # second
    saving.wait_event(module.current_stream().record_event())
    with module.stream(saving):
        saved[step].copy_(state)  # first
