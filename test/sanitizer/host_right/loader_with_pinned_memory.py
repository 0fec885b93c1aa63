"""nothing: a DataLoader pins its batches, and the program copies them without blocking."""

import torch

from device import DEVICE

data = torch.utils.data.TensorDataset(torch.ones(64, 8), torch.arange(64))
loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True)
total = torch.zeros((), device=DEVICE)
for values, labels in loader:
    total += values.to(DEVICE, non_blocking=True).sum() + labels.to(DEVICE, non_blocking=True).sum()
assert total.item() == 64 * 8 + 63 * 64 // 2
