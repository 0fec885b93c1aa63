"""nothing: indices reach both ends of their range; errors have other reasons."""

import torch

from device import DEVICE

table = torch.ones(4, 3, device=DEVICE)
ends = torch.tensor([0, 3], device=DEVICE)
from_end = torch.tensor([-4, -1], device=DEVICE)
mask = torch.tensor([True, False, False, True], device=DEVICE)
taken = [table[ends], table[from_end], table[mask], table.take(ends), table.index_select(0, ends)]
table.index_fill_(0, from_end, 2.0)
scores, labels = torch.zeros(2, 3, device=DEVICE), torch.tensor([2, -100], device=DEVICE)
loss = torch.nn.functional.cross_entropy(scores, labels)
for wrong in (
    lambda: table.index_select(2, ends),
    lambda: table.gather(0, ends),
    lambda: table[ends, ends, ends],
    lambda: table.index_select(0, ends.float()),
):
    try:
        wrong()
    except (IndexError, RuntimeError):
        continue
    raise AssertionError("it is no error")
