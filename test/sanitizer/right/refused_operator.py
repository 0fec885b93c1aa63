"""nothing: an operator that raises an error neither reads nor orders anything."""

import contextlib

import torch

from device import DEVICE, module

side = module.Stream()
unwritten, x = torch.empty(10, device=DEVICE), torch.ones(3, device=DEVICE)
with contextlib.suppress(RuntimeError):
    unwritten + x
with module.stream(side), contextlib.suppress(RuntimeError):
    x.add_(unwritten)
total = x.sum()
