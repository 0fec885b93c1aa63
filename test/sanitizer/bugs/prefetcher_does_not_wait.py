"""race: a prefetcher hands out batches that its stream may still be copying."""

import torch

from device import DEVICE, module


class Prefetcher:
    def __init__(self, batches):
        self.batches, self.stream = iter(batches), module.Stream()
        self.preload()

    def preload(self):
        with module.stream(self.stream):
            batch = next(self.batches, None)
            self.batch = None if batch is None else batch.to(DEVICE, non_blocking=True)  # first

    def next(self):
        batch = self.batch
        self.preload()
        return batch


prefetcher = Prefetcher([torch.ones(16, 8).pin_memory() for _ in range(3)])
weights = torch.ones(8, 4, device=DEVICE)
kept = []
while (batch := prefetcher.next()) is not None:
    kept.append((batch, batch @ weights))  # second
