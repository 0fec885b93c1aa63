"""nothing: a writer waits for each of ten readers."""

import torch

from device import DEVICE, module

readers = [module.Stream() for _ in range(10)]
x = torch.ones(1000, device=DEVICE)
results = []
for reader in readers:
    reader.wait_stream(module.current_stream())
    with module.stream(reader):
        results.append(x.sum())
for reader in readers:
    module.current_stream().wait_stream(reader)
x.zero_()
