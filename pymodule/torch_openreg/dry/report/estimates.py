"""Estimates of the memory of a GPU beside the allocator's. docs/gpu-memory.md has the sources."""

import os

from torch_openreg import _C

from .log import ALLOCATED, Log
from .model import COMMUNICATOR, CONTEXT, WORKSPACES, Estimate
from .recorder import Recorder

_NCCL_SOURCE = "NVIDIA/nccl#964, the first communicator on A100s; later ones are not counted"

# Measured on an H100 with NCCL 2.28.9: the first communicator, of one rank.
_NCCL_ALONE_BYTES = 591396864
_NCCL_ALONE_SOURCE = "measured on an H100: the first communicator, of one rank"

# Operators that call cuBLAS.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "linear", "_scaled_mm")
_PRODUCT_NODES = ("MmBackward0", "AddmmBackward0", "BmmBackward0", "BaddbmmBackward0")


def _multiplies(operation: str) -> bool:
    name = operation.removeprefix("aten::").removesuffix("_").split(".")[0]
    return name in _PRODUCTS or operation in _PRODUCT_NODES


def _workspace_users(log: Log, device: int) -> int:
    """Return how many pairs of a thread and a stream multiplied matrices."""
    multiplying = {i for i, name in enumerate(log.operations) if _multiplies(name)}
    return len(
        {
            (event.thread, event.stream)
            for event in log.events
            if event.action == ALLOCATED
            and event.device == device
            and event.operation in multiplying
        }
    )


def _workspace_bytes(device: int) -> int:
    previous = _C.current_device()
    try:
        _C.maybe_exchange_device(device)
        return _C.cublas_workspace_size()
    finally:
        _C.maybe_exchange_device(previous)


def of_device(log: Log, recorder: Recorder, device: int) -> list[Estimate]:
    """Return the estimates for a device that this process used."""
    is_counted = os.environ.get("OPENREG_GPU_OVERHEAD") == "1"
    properties = _C.get_device_properties(device)
    made = [
        Estimate(
            CONTEXT,
            properties.context_bytes,
            f"the profile {properties.profile}",
            is_counted=is_counted,
        )
    ]
    if users := _workspace_users(log, device):
        size = _workspace_bytes(device)
        what = f"{users} x {size} bytes, for each thread and stream that multiplies matrices"
        made.append(Estimate(WORKSPACES, users * size, what, users, is_counted))
    if recorder.largest_group > 0:
        is_set = "OPENREG_NCCL_MEMORY" in os.environ
        is_alone = recorder.largest_group == 1 and not is_set
        size = _NCCL_ALONE_BYTES if is_alone else _C.estimate_nccl_memory(recorder.largest_group)
        source = _NCCL_ALONE_SOURCE if is_alone else _NCCL_SOURCE
        made.append(Estimate(COMMUNICATOR, size, source, is_counted=is_counted and is_set))
    return made
