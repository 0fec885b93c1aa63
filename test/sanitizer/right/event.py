"""nothing: an event is recorded after the work, and the next work waits for it."""

import torch

from device import DEVICE, module

side, written, read = module.Stream(), module.Event(), module.Event()
x = torch.ones(1000, device=DEVICE)
written.record()
side.wait_event(written)
with module.stream(side):
    y = x * 2
    read.record()
module.current_stream().wait_event(read)
x.zero_()
