"""Sends tensors, storages and events of a device to other processes.

``torch.multiprocessing`` serializes objects with reducers that know CPU and CUDA. The reducers here
run first. A storage is sent as a handle, with which the receiver maps the same memory, and an event
likewise. PyTorch's own reducers split tensors, parameters, sparse and nested tensors into their
storages, which come here.

As with CUDA:

- A handle is valid while its process lives, and for one receiver.
- A received storage cannot be sent again.
- A process that was forked after the devices were initialized cannot receive.

Unlike CUDA:

- A storage can be sent without a tensor.
- A tensor keeps its conjugate and negative bits.
- A received storage is on the same device as before, even if the device has another index in the
  receiver. Only an empty storage, which has no handle, gets the sender's index.
"""

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from torch_openreg import _C

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def rebuild_storage(device: int, size: int, handle: bytes | None) -> torch.UntypedStorage:
    """Make a storage from the result of `reduce_storage`; without a handle it is empty."""
    if handle is None:
        return torch.UntypedStorage(0, device=torch.device("openreg", device))
    return _C.import_storage(_C.device_of_handle(handle), size, handle)


def reduce_storage(storage: torch.UntypedStorage) -> Reduced:
    """Reduce a storage: to a handle, if it is on a device."""
    if storage.device.type != "openreg":
        return reductions.reduce_storage(storage)
    size = storage.nbytes()
    handle = _C.export_storage(storage) if size > 0 else None
    return rebuild_storage, (storage.device.index, size, handle)


def rebuild_lazy_tensor(
    rebuild: Callable[..., torch.Tensor], arguments: tuple[Any, ...], bits: dict[str, bool]
) -> torch.Tensor:
    """Make a tensor with its conjugate and negative bits from the result of `reduce_tensor`."""
    tensor = rebuild(*arguments)
    torch._utils.set_tensor_metadata(tensor, bits)
    return tensor


def reduce_tensor(tensor: torch.Tensor) -> Reduced:
    """Reduce a tensor as PyTorch does, and keep the conjugate and negative bits."""
    reduced: Reduced = reductions.reduce_tensor(tensor)
    if tensor.device.type == "openreg" and (tensor.is_conj() or tensor.is_neg()):
        return rebuild_lazy_tensor, (*reduced, torch._utils.get_tensor_metadata(tensor))
    return reduced


def rebuild_event(handle: bytes) -> torch.Event:
    """Make an event from the result of `reduce_event`."""
    return _C.import_event(_C.device_of_handle(handle), handle)


def reduce_event(event: torch.Event) -> Reduced:
    """Reduce an event to a handle.

    Raises
    ------
    TypeError
        For an event of another device type, as without this function.
    """
    if event.device.type != "openreg":
        raise TypeError("cannot pickle 'torch.Event' object")
    return rebuild_event, (_C.export_event(event),)


def register() -> None:
    """Replace the reducers of ``torch.multiprocessing``."""
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    ForkingPickler.register(torch.Tensor, reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, reduce_tensor)
    ForkingPickler.register(torch.Event, reduce_event)
