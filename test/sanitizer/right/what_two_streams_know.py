"""nothing: two streams wait for each other, and a third one waits for one of them."""

import torch

from device import DEVICE, module

a, b, c = (module.Stream() for _ in range(3))
with module.stream(a):
    x = torch.ones(1000, device=DEVICE)
    of_a = a.record_event()
with module.stream(b):
    y = torch.ones(1000, device=DEVICE)
    of_b = b.record_event()
    b.wait_event(of_a)
    x.add_(1)
    both = b.record_event()
a.wait_event(of_b)
c.wait_event(both)
with module.stream(c):
    x.mul_(2)
    y.mul_(2)
