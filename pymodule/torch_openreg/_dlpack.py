"""DLPack: the DLPack device of openreg tensors.

PyTorch exports and imports memory of a PrivateUse1 backend as ``kDLExtDev``. But
``Tensor.__dlpack_device__``, which ``torch.from_dlpack`` calls first, only knows the backend by the
name that it had before it was renamed, and rejects any other name.
"""

from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

_device_of_others = torch.Tensor.__dlpack_device__


def _dlpack_device(self: torch.Tensor) -> tuple[Any, int]:
    """Return the DLPack device of a tensor: its type and index."""
    if not has_torch_function_unary(self) and self.device.type == "openreg":
        return DLDeviceType.kDLExtDev, self.get_device()
    return _device_of_others(self)


def register() -> None:
    """Let ``torch.from_dlpack`` accept tensors of this backend."""
    torch.Tensor.__dlpack_device__ = _dlpack_device  # type: ignore[method-assign]
