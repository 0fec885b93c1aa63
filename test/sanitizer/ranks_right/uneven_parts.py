"""nothing: parts with padding are gathered, and only written bytes are used."""

import torch
import torch.distributed as dist

from device import DEVICE, module

dist.init_process_group()
module.set_device(dist.get_rank())
lengths = (60, 80)
part = torch.empty(100, device=DEVICE)
part[: lengths[dist.get_rank()]] = 1
parts = [torch.empty(100, device=DEVICE) for _ in range(2)]
dist.all_gather(parts, part)
whole = torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])
assert whole.sum() == sum(lengths)
module.synchronize()
dist.destroy_process_group()
