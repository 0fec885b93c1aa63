"""The allocation log of the bridge (``memory/observation/allocation_log.h``).

An event is known by its number in the log, which has the events of all devices in order.
"""

import os
import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch

from torch_openreg import _C

# The layout of LogEvent.
LOG_EVENT = struct.Struct("<q3QqIIIhBBBBH4x")

# openreg_memory_action
(
    ALLOCATED,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOCATED,
    SEGMENT_FREED,
    SEGMENT_MAPPED,
    SEGMENT_UNMAPPED,
    EXHAUSTED,
) = range(8)

# LogFlags
IN_BACKWARD, GRAD_ENABLED, ALLOCATING = 1, 2, 4

_SKIPPED = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, _C.__file__)
)
_TORCH = _SKIPPED[0]


class Event(NamedTuple):
    """An event of the log. Index 0 stands for no stack, operation or module call."""

    time_us: int
    address: int
    bytes: int
    block_bytes: int
    sequence: int
    stack: int
    operation: int
    module_call: int
    stream: int
    device: int
    action: int
    flags: int
    thread: int
    mempool: int


class Line(NamedTuple):
    """A line of a Python program."""

    file: str
    line: int
    function: str


class Events:
    """The events of a log, unpacked when they are asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data) // LOG_EVENT.size

    def __getitem__(self, index: int) -> Event:
        return Event._make(LOG_EVENT.unpack_from(self._data, index * LOG_EVENT.size))

    def __iter__(self) -> Iterator[Event]:
        return map(Event._make, LOG_EVENT.iter_unpack(self._data))


class Log:
    """A copy of the log."""

    def __init__(self) -> None:
        data, self.operations, self.lost = _C.allocation_log()
        self.events = Events(data)


@cache
def frames(stack: int) -> tuple[Line, ...]:
    """Return the lines of a stack, innermost first."""
    return tuple(Line._make(each) for each in _C.stack_of_log(stack))


_GENERATED = os.sep + "torchinductor_"  # in the paths of code that torch.compile writes


def _is_of_program(frame: Line) -> bool:
    return not frame.file.startswith((*_SKIPPED, "<frozen ")) and _GENERATED not in frame.file


@cache
def line_of(stack: int) -> Line | None:
    """Return the innermost line of a stack outside of PyTorch and openreg, if there is one."""
    return next(filter(_is_of_program, frames(stack)), None)


def _inner_torch_frames(stack: int) -> Iterator[Line]:
    """Yield the frames of PyTorch between the allocation and the program or the next module."""
    for frame in frames(stack):
        if not frame.file.startswith(_TORCH) or frame.function == "_call_impl":
            return
        yield Line(frame.file[len(_TORCH) :], frame.line, frame.function)


# Functions that allocate memory for communication, by the file below the package of PyTorch. None
# stands for all functions of the file.
_COMMUNICATION: dict[str, tuple[str, ...] | None] = {
    "distributed/distributed_c10d.py": None,
    "distributed/_functional_collectives.py": None,
    "distributed/nn/functional.py": None,
    "distributed/fsdp/_fully_shard/_fsdp_collectives.py": None,
    "distributed/fsdp/_fully_shard/_fsdp_param_group.py": None,
    "distributed/fsdp/_fully_shard/_fsdp_param.py": (
        "alloc_all_gather_outputs",
        "init_all_gather_outputs",
        "init_unsharded_param",
        "alloc_storage",
    ),
    "distributed/fsdp/_flat_param.py": (
        "_alloc_padded_unsharded_flat_param",
        "_all_gather_flat_param",
        "_get_padded_unsharded_flat_param",
    ),
    "distributed/tensor/_redistribute.py": None,
    "distributed/tensor/_collective_utils.py": None,
    "distributed/utils.py": ("_alloc_storage",),
    "nn/parallel/distributed.py": ("_ddp_init_helper", "_sync_buffers", "_pre_forward"),
}


# Functions of FSDP2 that allocate a rank's own part of a parameter.
_SHARDING = ("_init_sharded_param", "reset_sharded_param")


@cache
def communicates(stack: int) -> bool:
    """Return whether a stack allocates memory for communication."""
    for frame in _inner_torch_frames(stack):
        if frame.function in _SHARDING:
            return False
        functions = _COMMUNICATION.get(frame.file, ())
        if functions is None or frame.function in functions:
            return True
    return False
