"""``torch.utils.cpp_extension`` without a CUDA toolkit.

Builds of C++ extensions that use PyTorch's CUDA libraries look for a toolkit: its headers,
``libcudart.so``, and the version that nvcc prints. The folder ``toolkit`` of the package has these.
It also has ``libtorch_cuda.so`` and ``libc10_cuda.so``, which PyTorch's CPU build lacks. CUDA mode
makes this folder ``CUDA_HOME`` if the machine has no toolkit. So a library's ``setup.py`` and the
functions ``load`` and ``load_inline`` compile host code unchanged. Kernels need NVIDIA's compiler:
files ``.cu`` are refused.
"""

import functools
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from torch_openreg._at_import import Load, at_import

FOLDER = Path(__file__).parents[1] / "toolkit"
_INCLUDE = str(FOLDER / "include")
_LIBRARIES = str(FOLDER / "lib64")


def install() -> None:
    """Prepare ``torch.utils.cpp_extension`` as soon as a program imports it."""
    at_import({"torch.utils.cpp_extension": _load})


def _load(module: ModuleType, load: Load) -> None:
    load(module)
    home = _cuda_home(module)
    module.CUDA_HOME = home  # type: ignore[attr-defined]
    _add_paths(module)
    if home == str(FOLDER):
        _refuse_kernels(module)


def _cuda_home(module: ModuleType) -> str | None:
    """Return the folder of this machine's toolkit; openreg's, if there is none.

    PyTorch's CPU build does not look for one. An empty variable CUDA_HOME means none at all, for a
    library that is to be built without its kernels.
    """
    if os.environ.get("CUDA_HOME") == "" and not os.environ.get("CUDA_PATH"):
        return None
    return module.CUDA_HOME or module._find_cuda_home() or str(FOLDER)


def _add_paths(module: ModuleType) -> None:
    """Let builds for CUDA find what PyTorch's CPU build lacks, after everything else."""
    include_paths, library_paths = module.include_paths, module.library_paths
    prepare_ldflags = module._prepare_ldflags

    @functools.wraps(include_paths)
    def with_headers(device_type: str = "cpu", *args: Any, **kwargs: Any) -> list[str]:
        paths = include_paths(device_type, *args, **kwargs)
        return _with(_INCLUDE, paths) if device_type == "cuda" else paths

    @functools.wraps(library_paths)
    def with_libraries(device_type: str = "cpu", *args: Any, **kwargs: Any) -> list[str]:
        paths = library_paths(device_type, *args, **kwargs)
        return _with(_LIBRARIES, paths) if device_type == "cuda" else paths

    @functools.wraps(prepare_ldflags)
    def with_folder(extra_ldflags: Any, with_cuda: bool, *args: Any, **kwargs: Any) -> Any:
        flags = prepare_ldflags(extra_ldflags, with_cuda, *args, **kwargs)
        return _with(f"-L{_LIBRARIES}", flags) if with_cuda else flags

    module.include_paths = with_headers  # type: ignore[attr-defined]
    module.library_paths = with_libraries  # type: ignore[attr-defined]
    module._prepare_ldflags = with_folder  # type: ignore[attr-defined]


def _with(item: str, items: list[str]) -> list[str]:
    return items if item in items else [*items, item]


def _refuse_kernels(module: ModuleType) -> None:
    """Refuse files ``.cu`` before anything is compiled. All ways to compile ask `_is_cuda_file`."""
    is_cuda_file = module._is_cuda_file

    @functools.wraps(is_cuda_file)
    def refuse(path: str) -> bool:
        if is_cuda_file(path):
            raise RuntimeError(
                f"openreg: cannot compile {path}: openreg has no compiler for CUDA kernels. Set "
                "CUDA_HOME to the folder of a CUDA toolkit, or to nothing (CUDA_HOME=) to build a "
                "library without its kernels."
            )
        return False

    module._is_cuda_file = refuse  # type: ignore[attr-defined]
    # setup.py: PyTorch compares versions first, and nvcc's need not be that of torch.version.cuda.
    module._check_cuda_version = lambda *args: None  # type: ignore[attr-defined]
