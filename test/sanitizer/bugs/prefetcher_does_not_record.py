"""use after free: a prefetcher's batch is freed while it is read, and its memory is reused."""

import torch

from device import DEVICE, module


class Prefetcher:
    def __init__(self, batches):
        self.batches, self.stream = iter(batches), module.Stream()
        self.preload()

    def preload(self):
        with module.stream(self.stream):
            batch = next(self.batches, None)
            self.batch = None if batch is None else batch.to(DEVICE, non_blocking=True)  # second

    def next(self):
        module.current_stream().wait_stream(self.stream)
        batch = self.batch
        self.preload()
        return batch


prefetcher = Prefetcher([torch.ones(1 << 10, 3 << 10).pin_memory() for _ in range(4)])
totals, places = [], []
while (batch := prefetcher.next()) is not None:
    totals.append(batch.sum())  # first
    places.append(batch.data_ptr())
assert len(set(places)) < len(places)
