"""race: a metric is accumulated on a side stream and read on another stream."""

import torch

from device import DEVICE, module

metrics = module.Stream()
total = torch.zeros((), device=DEVICE)
for _ in range(2):
    loss = torch.ones((), device=DEVICE)
    metrics.wait_stream(module.current_stream())
    with module.stream(metrics):
        total.add_(loss)  # first
    loss.record_stream(metrics)
average = total / 2  # second
