"""nothing: the allocator does not reuse freed pinned memory while it is being copied."""

import torch

from device import DEVICE

batches = []
for step in range(4):
    pinned = torch.full((1 << 16,), float(step)).pin_memory()
    batches.append(pinned.to(DEVICE, non_blocking=True))
    del pinned
assert [batch[0].item() for batch in batches] == [0, 1, 2, 3]
