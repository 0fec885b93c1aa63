"""nothing: gradients that are sparse, added up and applied."""

import torch

from device import DEVICE

table = torch.nn.Embedding(50, 8, sparse=True, device=DEVICE)
optimizer = torch.optim.SparseAdam(table.parameters())
for _ in range(2):
    table(torch.tensor([1, 3, 3, 7], device=DEVICE)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dense = table.weight.sum()
