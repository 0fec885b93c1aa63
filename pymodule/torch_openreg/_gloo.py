"""The backend "gloo" of ``torch.distributed`` for tensors of the devices.

The bridge's class replaces ``ProcessGroupGloo`` and inherits from it, so CPU tensors use the same
code as before. In CUDA mode, PyTorch already assumes that Gloo supports ``cuda``.
"""

import torch
from torch import distributed

from . import _C


def install(device_type: str) -> None:
    """Install the class in PyTorch, if PyTorch has Gloo. A second call does nothing."""
    if not distributed.is_available() or not distributed.is_gloo_available():
        return
    if hasattr(_C, "ProcessGroupGloo"):
        return
    from torch.distributed import distributed_c10d

    _C.define_gloo()
    for module in (torch._C._distributed_c10d, distributed_c10d, distributed):
        module.ProcessGroupGloo = _C.ProcessGroupGloo  # type: ignore[attr-defined]
    _C.ProcessGroupGloo.__module__ = distributed_c10d.__name__

    backend = distributed_c10d.Backend
    if device_type not in backend.backend_capability[backend.GLOO]:
        backend.backend_capability[backend.GLOO].append(device_type)
