"""use after free: record_stream names another stream than the one that reads."""

import torch

from device import DEVICE, module

reading, idle = module.Stream(), module.Stream()
x = torch.ones(3 << 20, device=DEVICE)
place = x.data_ptr()
reading.wait_stream(module.current_stream())
with module.stream(reading):
    total = x.sum()  # first
x.record_stream(idle)
del x  # freed
idle.synchronize()
y = torch.zeros(3 << 20, device=DEVICE)  # second
assert y.data_ptr() == place
