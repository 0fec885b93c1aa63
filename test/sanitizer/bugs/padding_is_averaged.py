"""uninitialised read: a batch of sequences has unwritten padding, which is averaged."""

import torch

from device import DEVICE

sequences = [torch.ones(length, 8, device=DEVICE) for length in (5, 3, 7)]
batch = torch.empty(3, 7, 8, device=DEVICE)  # allocated
for row, sequence in zip(batch, sequences, strict=True):
    row[: len(sequence)] = sequence
average = batch.mean(1)  # second
