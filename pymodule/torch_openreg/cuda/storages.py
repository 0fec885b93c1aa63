"""Storages on ``cuda``: the constructor and ``resize_``, which need a PyTorch with CUDA.

All other methods of a storage use tensors or these two.
"""

from typing import Any

import torch

from torch_openreg import _C

_new_of_others = torch.UntypedStorage.__new__
_resize_of_others = torch.UntypedStorage.resize_
_operators = torch.library.Library("inductor", "IMPL")


def _empty(nbytes: int, device: torch.device) -> torch.UntypedStorage:
    """Return a storage with real memory, even if a mode such as FakeTensorMode is active."""
    if nbytes < 0:
        raise RuntimeError(f"Storage size must be non-negative, got {nbytes}")
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        return torch.empty(nbytes, dtype=torch.uint8, device=device).untyped_storage()


def _new_storage(
    cls: type[torch.UntypedStorage], *args: Any, **kwargs: Any
) -> torch.UntypedStorage:
    """Create a storage: with a size in bytes, from a sequence of bytes, or empty."""
    device = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    if device is None or device.type != "cuda" or len(kwargs) > 1 or len(args) > 1:
        return _new_of_others(cls, *args, **kwargs)
    if args and type(args[0]) is not int:
        values = _new_of_others(cls, *args)
        return _empty(values.nbytes(), device).copy_(values)
    return _empty(args[0] if args else 0, device)


def _resize(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    """Change the size of a storage and keep its contents."""
    if self.device.type != "cuda" or not isinstance(size, int):
        return _resize_of_others(self, size)
    _C.resize_storage(self, size)
    return self


def _resize_storage_of(tensor: torch.Tensor, size: int) -> None:
    """Implement the operator that compiled programs call instead of ``resize_``."""
    tensor.untyped_storage().resize_(size)


def install() -> None:
    """Replace the methods of PyTorch's storages."""
    torch.UntypedStorage.__new__ = _new_storage  # type: ignore[assignment, method-assign]
    torch.UntypedStorage.resize_ = _resize  # type: ignore[assignment, method-assign]
    _operators.impl("resize_storage_bytes_", _resize_storage_of, "CUDA")
