"""CUDA mode: the devices are PyTorch's ``cuda``, and PyTorch's own ``torch.cuda`` runs over them.

``torch.cuda`` asks ``torch._C`` for what a build of PyTorch with CUDA has there, some of it when it
is imported. The modules of this package have these names, as they are called there, and
`supply_names` puts them into ``torch._C`` just before ``torch.cuda`` is imported. PyTorch is not
whole at that time: so these modules import nothing of it but ``torch._C``.

`finish` does the rest when PyTorch is whole: what a build with CUDA has in C++ behind names that a
build without it has too, and refuses.
"""

from types import ModuleType

import torch._C
from _openreg_cuda_mode import cuda_version

from . import devices, libraries, memory, streams, tunable


def supply_names() -> None:
    """Put the names that a build with CUDA has into ``torch._C``."""
    for module in (devices, streams, memory, libraries, tunable):
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                value.__name__ = f"torch._C.{name}"
            setattr(torch._C, name, value)


def finish() -> None:
    """Do what needs all of PyTorch."""
    from torch_openreg import _gloo, _meta, _occl, _profiling, _symmetric_memory, inductor  # noqa: F401 - _meta registers kernels

    from . import communication, nccl, remote_calls, sharing, storages, tensor_types

    torch.version.cuda = cuda_version()
    torch.backends.cuda.is_built = lambda: True
    # Recurrent modules ask whether cuDNN takes a tensor, and warn where a build lacks it.
    torch.backends.cudnn.CUDNN_TENSOR_DTYPES.clear()
    for module in (storages, sharing, communication, nccl, remote_calls, tensor_types):
        module.install()
    _gloo.install("cuda")
    _occl.install("cuda")
    _symmetric_memory.install("cuda")
    _profiling.install("cuda")
    inductor.when_compiling("cuda")
