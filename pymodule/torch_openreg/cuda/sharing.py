"""Sends storages on ``cuda`` to other processes: the methods that PyTorch's reducers need.

``torch.multiprocessing.reductions`` serializes tensors, as in a PyTorch with CUDA. It rejects
storages without a tensor and received storages, as with CUDA. Events use
`torch.cuda.Event.ipc_handle`.

CUDA sends a handle of the allocation, an offset, a counter of receivers, and an event to wait for.
A handle of openreg contains all of this: it is for one receiver, whose stream waits for the
sender's. So the other fields stay empty, and there is no counter to release. The handle also
contains the device, so processes may have different values of CUDA_VISIBLE_DEVICES.
"""

from typing import Any

import torch

from torch_openreg import _C

_SharedStorage = tuple[int, bytes | None, int, int, bytes, int, bytes, bool]


def _share(self: torch.UntypedStorage) -> _SharedStorage:
    """Export a storage; return the arguments of `_receive`."""
    if self.device.type != "cuda":
        raise RuntimeError(
            f"_share_cuda_: only available on CUDA, but the storage is {self.device}"
        )
    size_bytes = self.nbytes()
    handle = _C.export_storage(self) if size_bytes > 0 else None
    return self.device.index, handle, size_bytes, 0, b"", 0, b"", False


def _receive(
    cls: type[torch.UntypedStorage],
    device: int,
    handle: bytes | None,
    size_bytes: int,
    offset_bytes: int,
    ref_counter_handle: bytes,
    ref_counter_offset: int,
    event_handle: bytes,
    event_sync_required: bool,
) -> torch.UntypedStorage:
    """Import a storage of another process, from the result of `_share`."""
    if handle is None:
        return cls(0, device=torch.device("cuda", device))
    return _C.import_storage(_C.device_of_handle(handle), size_bytes, handle)


def _release_ipc_counter(
    cls: type[torch.UntypedStorage], ref_counter_handle: bytes, ref_counter_offset: int
) -> None:
    """Do nothing: there is no counter of receivers."""


def install() -> None:
    """Let ``torch.multiprocessing`` send tensors on ``cuda``."""
    storage: Any = torch.UntypedStorage
    storage._share_cuda_ = _share
    storage._new_shared_cuda = classmethod(_receive)
    storage._release_ipc_counter_cuda = classmethod(_release_ipc_counter)
