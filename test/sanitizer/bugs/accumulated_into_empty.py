"""uninitialised read: index_put_ with accumulate adds to unwritten memory."""

import torch

from device import DEVICE

index = torch.tensor([0, 2, 2, 5], device=DEVICE)
counts = torch.empty(6, device=DEVICE)  # allocated
counts.index_put_((index,), torch.ones(4, device=DEVICE), accumulate=True)  # second
