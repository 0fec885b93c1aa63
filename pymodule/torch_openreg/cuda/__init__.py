"""CUDA mode: the devices are PyTorch's ``cuda``, and PyTorch's own ``torch.cuda`` uses them.

``torch.cuda`` uses names in ``torch._C`` that exist in a PyTorch with CUDA, some of them during its
import. The modules of this package define these names, and `supply_names` adds them to ``torch._C``
just before ``torch.cuda`` is imported. PyTorch is not fully imported then, so these modules import
nothing of it but ``torch._C``.

`finish` does the rest after the import of PyTorch: functions that exist in every PyTorch, but raise
an error in one without CUDA.
"""

import functools
import sys
from types import ModuleType

import torch._C
from _openreg_cuda_mode import cuda_version

from torch_openreg import _releases

from . import devices, libraries, memory, runtime, streams, tunable


def supply_names() -> None:
    """Add the names of a PyTorch with CUDA to ``torch._C``."""
    for module in (devices, streams, memory, runtime, libraries, tunable):
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                value.__name__ = f"torch._C.{name}"
            setattr(torch._C, name, value)
    _releases.supply_cuda_names()
    _hide_libraries()


def _hide_libraries() -> None:
    """Remove what only a PyTorch with CUDA has in ``torch._C`` for libraries that openreg lacks.

    PyTorch's Python code then uses none of them, as in a build without CUDA.
    """
    for name in ("cudnn", "cusparselt"):
        setattr(torch._C, f"_has_{name}", False)
        sys.modules.pop(f"torch._C._{name}", None)
        if hasattr(torch._C, f"_{name}"):
            delattr(torch._C, f"_{name}")


@functools.cache
def finish() -> None:
    """Finish CUDA mode after the import of PyTorch. A second call does nothing."""
    from torch_openreg import (
        _gloo,
        _meta,  # noqa: F401 - registers kernels
        _occl,
        _profiling,
        _semi_structured,
        _symmetric_memory,
        inductor,
    )

    from . import (
        communication,
        library_operators,
        nccl,
        remote_calls,
        sharing,
        storages,
        tensor_types,
        toolkit,
    )

    torch.version.cuda = cuda_version(torch.version.cuda)
    torch.backends.cuda.is_built = lambda: True
    # Recurrent modules check whether cuDNN supports a tensor, and warn if PyTorch lacks cuDNN.
    torch.backends.cudnn.CUDNN_TENSOR_DTYPES.clear()
    for module in (
        storages,
        sharing,
        communication,
        library_operators,
        nccl,
        remote_calls,
        tensor_types,
        toolkit,
    ):
        module.install()
    libraries.finish()
    _releases.finish_cuda_mode()
    _gloo.install("cuda")
    _occl.install("cuda")
    _semi_structured.install("CUDA")
    _symmetric_memory.install("cuda")
    _profiling.install("cuda")
    inductor.when_compiling("cuda")
