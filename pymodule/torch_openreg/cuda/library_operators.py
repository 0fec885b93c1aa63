"""Operators of other libraries: their CPU kernels run on the devices.

A library that was built for CUDA registers kernels for CUDA, which openreg cannot launch. Where an
operator of the library has a CPU kernel too, openreg runs that one, as it does for libraries
without kernels for CUDA.
"""

import functools
import re
import warnings
from typing import Any

import torch

from torch_openreg import _C


def _with_cuda_kernels() -> set[str]:
    return set(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"))


def _warn_of_missing_symbol(library: str, error: str) -> None:
    """Warn if no stand-in has a symbol: a program may go on without the library (torchvision)."""
    if found := re.search(r"undefined symbol: (\w+)", error):
        warnings.warn(
            f"openreg: {library} needs {found[1]}, which no library of openreg has with PyTorch "
            f"{torch.__version__}",
            stacklevel=3,
        )


def install() -> None:
    """Replace the CUDA kernels of each library that a program loads later."""
    load = torch.ops.load_library

    @functools.wraps(load)
    def load_library(path: Any) -> None:
        before = _with_cuda_kernels()
        try:
            load(path)
        except OSError as error:
            _warn_of_missing_symbol(str(path), str(error.__cause__))
            raise
        for name in sorted(_with_cuda_kernels() - before):
            _C.replace_cuda_kernel(name)

    torch.ops.load_library = load_library  # type: ignore[method-assign]
