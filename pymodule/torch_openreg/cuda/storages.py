"""Storages on ``cuda``: PyTorch's constructor and ``resize_`` refuse them in a build without CUDA.

All else that a storage does, PyTorch does by tensors over it, or in Python, and reaches these two.
"""

from typing import Any

import torch

from torch_openreg import _C

_new_elsewhere = torch.UntypedStorage.__new__
_resize_elsewhere = torch.UntypedStorage.resize_
_operators = torch.library.Library("inductor", "IMPL")


def _empty(nbytes: int, device: torch.device) -> torch.UntypedStorage:
    """Return a storage of real memory, whatever modes tensors are made under."""
    if nbytes < 0:
        raise RuntimeError(f"Storage size must be non-negative, got {nbytes}")
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        return torch.empty(nbytes, dtype=torch.uint8, device=device).untyped_storage()


def _new_storage(
    cls: type[torch.UntypedStorage], *args: Any, **kwargs: Any
) -> torch.UntypedStorage:
    """Make a storage of so many bytes, of a sequence of bytes, or an empty one."""
    device = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    if device is None or device.type != "cuda" or len(kwargs) > 1 or len(args) > 1:
        return _new_elsewhere(cls, *args, **kwargs)
    if args and type(args[0]) is not int:
        values = _new_elsewhere(cls, *args)
        return _empty(values.nbytes(), device).copy_(values)
    return _empty(args[0] if args else 0, device)


def _resize(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    """Change how many bytes a storage has, keeping those that stay."""
    if self.device.type != "cuda" or not isinstance(size, int):
        return _resize_elsewhere(self, size)
    _C.resize_storage(self, size)
    return self


def _resize_storage_of(tensor: torch.Tensor, size: int) -> None:
    """Do what compiled programs call instead of ``resize_``."""
    tensor.untyped_storage().resize_(size)


def install() -> None:
    """Let PyTorch's storages be on ``cuda``."""
    torch.UntypedStorage.__new__ = _new_storage  # type: ignore[assignment, method-assign]
    torch.UntypedStorage.resize_ = _resize  # type: ignore[assignment, method-assign]
    _operators.impl("resize_storage_bytes_", _resize_storage_of, "CUDA")
