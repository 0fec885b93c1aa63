"""How storages on ``cuda`` go to other processes: what PyTorch's own reducers ask of a storage.

Tensors are taken apart and put together by ``torch.multiprocessing.reductions``, as with any build
of PyTorch that has CUDA; storages alone and received ones are refused there, as by CUDA. Events go
by `torch.cuda.Event.ipc_handle`.

CUDA has one handle for an allocation, and beside it an offset, a counter of receivers, and an event
to wait for. A handle of openreg says all of this: each is for one receiver, whose stream waits for
the sender's; so the places for the others stay empty, and none has to be given back. It says, too,
which device it is for, so that processes with different CUDA_VISIBLE_DEVICES understand each other.
"""

from typing import Any

import torch

from torch_openreg import _C

_SharedStorage = tuple[int, bytes | None, int, int, bytes, int, bytes, bool]


def _share(self: torch.UntypedStorage) -> _SharedStorage:
    """Take a storage apart, into the arguments of `_receive`."""
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
    """Make a storage of what `_share` took apart: the same memory, in another process."""
    if handle is None:
        return cls(0, device=torch.device("cuda", device))
    return _C.import_storage(_C.device_of_handle(handle), size_bytes, handle)


def _release_ipc_counter(
    cls: type[torch.UntypedStorage], ref_counter_handle: bytes, ref_counter_offset: int
) -> None:
    """Give back a counter of receivers: there is none."""


def install() -> None:
    """Let tensors on ``cuda`` go through ``torch.multiprocessing``."""
    storage: Any = torch.UntypedStorage
    storage._share_cuda_ = _share
    storage._new_shared_cuda = classmethod(_receive)
    storage._release_ipc_counter_cuda = classmethod(_release_ipc_counter)
