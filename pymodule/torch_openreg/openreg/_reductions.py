"""How tensors, storages and events of a device go to other processes.

What ``torch.multiprocessing`` sends, it takes apart with reducers that know CPU and CUDA. These
stand in front of them: a storage goes as a handle, by which the receiver uses the same memory, and
so does an event. Tensors, parameters, sparse and nested tensors are taken apart by PyTorch's own
reducers, down to their storages, which come here.

As with CUDA, a handle is good as long as its process lives, for one receiver; what was received
cannot be sent again; and a process that was forked after the devices were initialized receives
nothing. Other than CUDA's, a storage can be sent without a tensor, a tensor keeps its conjugate and
negative bits, and what is received is on the device that it is on, whichever index that has in the
receiver; only a storage without bytes, which has no handle, has the sender's index.
"""

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from torch_openreg import _C

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def rebuild_storage(device: int, size: int, handle: bytes | None) -> torch.UntypedStorage:
    """Make the storage that `reduce_storage` took apart; without handle it is an empty one."""
    if handle is None:
        return torch.UntypedStorage(0, device=torch.device("openreg", device))
    return _C.import_storage(_C.device_of_handle(handle), size, handle)


def reduce_storage(storage: torch.UntypedStorage) -> Reduced:
    """Take a storage apart: as a handle, if it is on a device."""
    if storage.device.type != "openreg":
        return reductions.reduce_storage(storage)
    size = storage.nbytes()
    handle = _C.export_storage(storage) if size > 0 else None
    return rebuild_storage, (storage.device.index, size, handle)


def rebuild_lazy_tensor(
    rebuild: Callable[..., torch.Tensor], arguments: tuple[Any, ...], bits: dict[str, bool]
) -> torch.Tensor:
    """Make the tensor that `reduce_tensor` took apart, with its conjugate and negative bits."""
    tensor = rebuild(*arguments)
    torch._utils.set_tensor_metadata(tensor, bits)
    return tensor


def reduce_tensor(tensor: torch.Tensor) -> Reduced:
    """Take a tensor apart as PyTorch does, and keep what it forgets."""
    reduced: Reduced = reductions.reduce_tensor(tensor)
    if tensor.device.type == "openreg" and (tensor.is_conj() or tensor.is_neg()):
        return rebuild_lazy_tensor, (*reduced, torch._utils.get_tensor_metadata(tensor))
    return reduced


def rebuild_event(handle: bytes) -> torch.Event:
    """Make the event that `reduce_event` took apart."""
    return _C.import_event(_C.device_of_handle(handle), handle)


def reduce_event(event: torch.Event) -> Reduced:
    """Take an event apart.

    Raises
    ------
    TypeError
        For an event that is not of an openreg device, as without this function.
    """
    if event.device.type != "openreg":
        raise TypeError("cannot pickle 'torch.Event' object")
    return rebuild_event, (_C.export_event(event),)


def register() -> None:
    """Stand in front of the reducers of ``torch.multiprocessing``."""
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    ForkingPickler.register(torch.Tensor, reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, reduce_tensor)
    ForkingPickler.register(torch.Event, reduce_event)
