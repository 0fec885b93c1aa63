"""DLPack: what device a tensor of ours says that it is on.

PyTorch exports memory of a PrivateUse1 backend as ``kDLExtDev``, and imports it as such. But
``Tensor.__dlpack_device__``, which ``torch.from_dlpack`` asks first, knows the backend by the name
that it had before it was renamed, and refuses any other.
"""

from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

_device_of_others = torch.Tensor.__dlpack_device__


def _dlpack_device(self: torch.Tensor) -> tuple[Any, int]:
    """The DLPack device of a tensor: its type, and its index among those of that type."""
    if not has_torch_function_unary(self) and self.device.type == "openreg":
        return DLDeviceType.kDLExtDev, self.get_device()
    return _device_of_others(self)


def register() -> None:
    """Let ``torch.from_dlpack`` take tensors of this backend."""
    torch.Tensor.__dlpack_device__ = _dlpack_device  # type: ignore[method-assign]
