"""nothing: memory is freed after its stream submitted a wait for the stream that reads it."""

import torch

from device import DEVICE, module

side = module.Stream()
totals, places = [], set()
for step in range(4):
    x = torch.full((3 << 20,), float(step), device=DEVICE)
    places.add(x.data_ptr())
    side.wait_stream(module.current_stream())
    with module.stream(side):
        totals.append(x.sum())
    module.current_stream().wait_stream(side)
    del x
assert len(places) == 1
