"""openreg in ten lines: a GPU's random numbers, memory and errors, without a GPU."""

import torch

torch.manual_seed(0)
print(torch.rand(4, device="openreg"))  # as on an NVIDIA GPU
layer = torch.nn.Linear(1000, 1000, device="openreg:1")
print(torch.openreg.memory_allocated(1), "bytes")  # counted as in torch.cuda
for device, rows in ("openreg:0", 1), ("openreg:1", 2**30):  # wrong device; too large
    try:
        layer(torch.ones(rows, 1000, device=device))
    except RuntimeError as error:
        print(f"{type(error).__name__}: {str(error).split(' GPU')[0]}")
