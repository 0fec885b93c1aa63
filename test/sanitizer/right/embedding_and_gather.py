"""nothing: kernels read by an index from tables that are completely written."""

import torch

from device import DEVICE, module

side = module.Stream()
table = torch.nn.Embedding(50, 8, device=DEVICE)
index = torch.arange(10, device=DEVICE)
side.wait_stream(module.current_stream())
with module.stream(side):
    rows = table.weight.detach().index_select(0, index)
gathered = table.weight.detach().gather(0, index.view(10, 1))
table(index).sum().backward()
module.current_stream().wait_stream(side)
largest = torch.topk(rows.sum(1), 3).values + gathered.sum()
