"""nothing: an event is recorded on another stream after all waits for its first recording."""

import torch

from device import DEVICE, module

streams, done = (module.Stream(), module.Stream()), module.Event()
results = []
for stream in streams:
    with module.stream(stream):
        results.append(torch.ones(1000, device=DEVICE))
        done.record()
    module.current_stream().wait_event(done)
total = results[0] + results[1]
