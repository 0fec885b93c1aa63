"""The backend "gloo" of ``torch.distributed`` for the devices' tensors.

``ProcessGroupGloo`` becomes the bridge's class, which inherits from PyTorch's: CPU tensors have the
same code as before. In CUDA mode PyTorch believes already that Gloo serves ``cuda``.
"""

import torch
from torch import distributed

from . import _C


def install(device_type: str) -> None:
    """Put the class where PyTorch looks for it; do nothing in a PyTorch without Gloo.

    Once is enough: called again, it does nothing.
    """
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
