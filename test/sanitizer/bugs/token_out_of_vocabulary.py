"""out of bounds: a token is beyond the embedding's rows."""

import contextlib

import torch

from device import DEVICE

embedding = torch.nn.Embedding(10, 4, device=DEVICE)
tokens = torch.arange(12, device=DEVICE).view(3, 4)  # allocated
with contextlib.suppress(IndexError):
    embedded = embedding(tokens)  # second
