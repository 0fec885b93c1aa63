"""host access: activations are offloaded on a side stream, and the host looks at them at once."""

import torch

from device import DEVICE, module

offloading = module.Stream()
activation = torch.ones(1 << 16, device=DEVICE)
kept = torch.empty(1 << 16).pin_memory()
offloading.wait_stream(module.current_stream())
with module.stream(offloading):
    kept.copy_(activation, non_blocking=True)  # first
module.current_stream().synchronize()
largest = kept.max()  # second
