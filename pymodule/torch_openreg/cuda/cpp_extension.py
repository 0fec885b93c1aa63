"""What a C++ extension that uses CUDA's libraries needs to be compiled, without CUDA.

Pass the results to ``torch.utils.cpp_extension``::

    from torch.utils.cpp_extension import CppExtension
    from torch_openreg.cuda import cpp_extension

    CppExtension(
        "my_extension",
        ["my_extension.cpp"],
        include_dirs=cpp_extension.include_paths(),
        extra_compile_args=cpp_extension.compile_flags(),
        extra_link_args=cpp_extension.link_flags(),
    )

The extension works with the CPU and the CUDA build of PyTorch in CUDA mode, and on GPUs with the
CUDA build of the same release. Kernels of CUDA (files ``.cu``) cannot be compiled: they need nvcc.

This module does not import PyTorch.
"""

from pathlib import Path

from _openreg_library import needed_libraries

__all__ = ["compile_flags", "include_paths", "link_flags"]

_PACKAGE = Path(__file__).parents[1]


def _cuda_version() -> str:
    """Return the major version of CUDA that openreg's ``libtorch_cuda.so`` was built for."""
    needed = needed_libraries(str(_PACKAGE / "lib" / "openreg_torch_cuda.so"))
    return "12" if "libcudart.so.12" in needed else "13"


def include_paths() -> list[str]:
    """Return the folder of headers that stand in for CUDA's, and for those of PyTorch's CUDA build.

    The headers declare what openreg has of the CUDA runtime. Of cuBLAS, cuSPARSE and cuSOLVER they
    have the types that PyTorch's headers name, and no functions.
    """
    return [str(_PACKAGE / "toolkit" / "include")]


def compile_flags() -> list[str]:
    """Return the macro that chooses the version of the CUDA runtime."""
    return ["-DCUDART_VERSION=" + {"12": "12080", "13": "13000"}[_cuda_version()]]


def link_flags() -> list[str]:
    """Return the paths of openreg's libraries.

    They have the SONAMEs of the real ones, so the extension needs ``libtorch_cuda.so``,
    ``libc10_cuda.so`` and ``libcudart.so.13`` or ``.12``.
    """
    names = ("torch_cuda", "c10_cuda", f"cudart_{_cuda_version()}")
    return [str(_PACKAGE / "lib" / f"openreg_{name}.so") for name in names]
