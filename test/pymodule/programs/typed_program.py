"""A program that `test_types` checks with type checkers. Nobody runs it.

A `type: ignore` comment marks a line with a mistake. Checkers also report such a comment on a line
without one. mypy and pyright name mistakes differently, so the comments name none.
"""

import torch
import torch.openreg.memory
from torch import Tensor, nn
from torch.openreg import memory_allocated
from torch.openreg.streams import current_stream
from typing_extensions import assert_type

tensor = torch.rand(4)
assert_type(tensor.openreg(), Tensor)
assert_type(tensor.openreg("openreg:1", non_blocking=True).cpu(), Tensor)
assert_type(tensor.is_openreg, bool)
assert_type(nn.Parameter(tensor).openreg(1), Tensor)
tensor.openrg()  # type: ignore
tensor.openreg(1.5)  # type: ignore
tensor.is_openreg = True  # type: ignore

layer = nn.Linear(1, 2)
assert_type(layer.openreg(), nn.Linear)
layer.openreg(device=None, slowly=True)  # type: ignore

assert_type(torch.openreg.device_count(), int)
assert_type(torch.openreg.get_device_capability(torch.device("openreg", 1)), tuple[int, int])
assert_type(torch.openreg.get_device_properties().total_memory, int)
assert_type(memory_allocated(1), int)
assert_type(torch.openreg.memory.mem_get_info("openreg:1"), tuple[int, int])
torch.openreg.memory._record_memory_history(max_entries=100)
torch.openreg.memory_allocated([1])  # type: ignore
torch.openreg.memory_alocated()  # type: ignore

event = torch.openreg.Event(enable_timing=True)
event.record(current_stream())
assert_type(event.elapsed_time(event), float)
torch.openreg.Event(timing=True)  # type: ignore
stream = torch.openreg.Stream(priority=-1)
stream.wait_event(event)
torch.accelerator.set_stream(stream)
with torch.openreg.stream(stream), torch.openreg.device(1):
    torch.openreg.synchronize()

with torch.openreg.sanitizer.watch() as watched:
    watched.findings()
scaler = torch.openreg.amp.GradScaler()
scaler.scale(tensor).backward()

# PyTorch's own names are unchanged.
assert_type(torch.abs(tensor), Tensor)
assert_type(layer.weight, Tensor)
torch.nothing()  # type: ignore
