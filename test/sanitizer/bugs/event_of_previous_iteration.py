"""unordered event: the consumer waits for the buffer before the producer has recorded it again."""

import torch

from device import DEVICE, module

producer, ready = module.Stream(), module.Event()
ready.record(producer)
buffer = torch.zeros(1000, device=DEVICE)
total = torch.zeros((), device=DEVICE)
for step in range(3):
    module.current_stream().wait_event(ready)  # waited
    producer.wait_stream(module.current_stream())
    with module.stream(producer):
        buffer.fill_(step)  # first
        ready.record()  # recorded
    total += buffer.sum()  # second
