"""nothing: operators that can add to unwritten memory get arguments that prevent it."""

import torch

from device import DEVICE

index = torch.tensor([0, 2, 5], device=DEVICE)
none = index[:0]
ones = torch.ones(6, device=DEVICE)

# The index selects no element.
torch.empty(6, device=DEVICE).index_add_(0, none, ones[:0])
torch.empty(6, device=DEVICE).put_(none, ones[:0], accumulate=True)

# The operator replaces the elements that the index selects.
torch.empty(6, device=DEVICE).index_put_((index,), ones[:3], accumulate=False)
torch.empty(6, device=DEVICE).scatter_reduce_(0, index, ones, "sum", include_self=False)
torch.empty(6, device=DEVICE).index_reduce_(0, index, ones[:3], "mean", include_self=False)

# The index may select only what was written.
partly_written = torch.empty(6, device=DEVICE)
partly_written[:3] = 0
partly_written.index_add_(0, index[:2], ones[:2])
