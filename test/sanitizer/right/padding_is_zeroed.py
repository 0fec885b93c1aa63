"""nothing: a batch of sequences has padding, which is also written."""

import torch

from device import DEVICE

sequences = [torch.ones(length, 8, device=DEVICE) for length in (5, 3, 7)]
batch = torch.empty(3, 7, 8, device=DEVICE)
for row, sequence in zip(batch, sequences, strict=True):
    row[: len(sequence)] = sequence
    row[len(sequence) :] = 0
average = batch.mean(1)
padded = torch.nn.utils.rnn.pad_sequence(sequences).sum()
