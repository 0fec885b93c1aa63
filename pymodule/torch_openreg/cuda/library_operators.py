"""Operators of other libraries: their CPU kernels run on the devices.

A library that was built for CUDA registers kernels for CUDA, which openreg cannot launch. Where an
operator of the library has a CPU kernel too, openreg runs that one, as it does for libraries
without kernels for CUDA. It does not matter how the library is loaded: by
``torch.ops.load_library``, or as a module that Python imports.
"""

import contextlib
import functools
import re
import warnings
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType
from typing import Any

import _openreg_cuda_mode
import torch
from _openreg_library import needed_libraries

from torch_openreg import _C

_CUDA_LIBRARY = re.compile(
    r"(libc10_cuda\.so|libtorch_cuda\.so|libcudart\.so\.\d+): cannot open shared object file"
)


def _with_cuda_kernels() -> set[str]:
    return set(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"))


@contextlib.contextmanager
def _replacing_cuda_kernels() -> Iterator[None]:
    """Replace the CUDA kernels of the library that the block loads."""
    before = _with_cuda_kernels()
    yield
    for name in sorted(_with_cuda_kernels() - before):
        _C.replace_cuda_kernel(name)


def _warn_of_missing_symbol(library: str, error: str) -> None:
    """Warn if no stand-in has a symbol: a program may go on without the library (torchvision)."""
    if found := re.search(r"undefined symbol: (\w+)", error):
        warnings.warn(
            f"openreg: {library} needs {found[1]}, which no library of openreg has with PyTorch "
            f"{torch.__version__}",
            stacklevel=3,
        )


def _load_cuda_libraries(error: str) -> bool:
    """Load the libraries of CUDA that a library missed, if openreg has them.

    PyTorch's CUDA build has loaded them already.
    """
    return _CUDA_LIBRARY.search(error) is not None and _openreg_cuda_mode.load_cuda_libraries()


def _patch_load_library() -> None:
    load = torch.ops.load_library

    @functools.wraps(load)
    def load_library(path: Any) -> None:
        with _replacing_cuda_kernels():
            try:
                load(path)
            except OSError as error:
                if not _load_cuda_libraries(str(error.__cause__)):
                    _warn_of_missing_symbol(str(path), str(error.__cause__))
                    raise
                load(path)

    torch.ops.load_library = load_library  # type: ignore[method-assign]


def _is_of_pytorch(needed: list[str]) -> bool:
    """Whether an extension module uses PyTorch's C++ libraries."""
    return any(name.startswith(("libtorch", "libc10")) for name in needed)


def _patch_imports() -> None:
    create = ExtensionFileLoader.create_module

    @functools.wraps(create)
    def create_module(self: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        needed = needed_libraries(self.path)
        if not _is_of_pytorch(needed):
            return create(self, spec)
        if any(name.startswith("libcudart.so") for name in needed):
            _openreg_cuda_mode.load_runtime()
        with _replacing_cuda_kernels():
            try:
                return create(self, spec)
            except ImportError as error:
                if not _load_cuda_libraries(str(error)):
                    _warn_of_missing_symbol(self.path, str(error))
                    raise
                return create(self, spec)

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


def _patch_allocators() -> None:
    """Let a library for memory find openreg's runtime, which PyTorch's CPU build does not load."""
    from torch.cuda.memory import CUDAPluggableAllocator

    initialize = CUDAPluggableAllocator.__init__

    @functools.wraps(initialize)
    def load_library(self: CUDAPluggableAllocator, *args: Any, **kwargs: Any) -> None:
        _openreg_cuda_mode.load_runtime()
        initialize(self, *args, **kwargs)

    CUDAPluggableAllocator.__init__ = load_library  # type: ignore[method-assign]


def install() -> None:
    """Replace the CUDA kernels of each library that a program loads later."""
    _patch_load_library()
    _patch_imports()
    _patch_allocators()
