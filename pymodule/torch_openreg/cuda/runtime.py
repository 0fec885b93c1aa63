"""The CUDA runtime as ``torch.cuda.cudart()`` has it: a few functions of openreg's libcudart.

PyTorch's functions take addresses as integers and return the runtime's error instead of raising it.
"""

import ctypes
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import _openreg_cuda_mode

from torch_openreg import _C

__all__ = ["_cudart"]


@cache
def _library() -> ctypes.CDLL:
    """Return openreg's CUDA runtime. It has the same devices, streams and memory as PyTorch."""
    library = ctypes.CDLL(_openreg_cuda_mode.runtime_library())
    for name in ("cudaGetErrorName", "cudaGetErrorString"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


class _CudaError(int):
    """A result of the runtime. It equals its number."""

    success: ClassVar["_CudaError"]

    @property
    def value(self) -> int:
        return int(self)

    @property
    def name(self) -> str:
        """The name of the runtime's enumeration, such as "cudaErrorInvalidValue"; or "success"."""
        return _library().cudaGetErrorName(self).decode() if self else "success"

    def __repr__(self) -> str:
        return f"<cudaError.{self.name}: {int(self)}>"

    def __str__(self) -> str:
        return f"cudaError.{self.name}"


_CudaError.success = _CudaError(0)


def _get_error_string(error: int) -> str:
    return _library().cudaGetErrorString(int(error)).decode()


def _start_profiler() -> _CudaError:
    return _CudaError(_library().cudaProfilerStart())


def _stop_profiler() -> _CudaError:
    return _CudaError(_library().cudaProfilerStop())


def _register_host_memory(ptr: int, size: int, flags: int) -> _CudaError:
    return _CudaError(
        _library().cudaHostRegister(
            ctypes.c_void_p(ptr), ctypes.c_size_t(size), ctypes.c_uint(flags)
        )
    )


def _unregister_host_memory(ptr: int) -> _CudaError:
    return _CudaError(_library().cudaHostUnregister(ctypes.c_void_p(ptr)))


def _create_stream(ptr: int) -> _CudaError:
    """Create a stream of the current device and write its handle to the address `ptr`."""
    return _CudaError(_library().cudaStreamCreate(ctypes.c_void_p(ptr)))


def _destroy_stream(ptr: int) -> _CudaError:
    return _CudaError(_library().cudaStreamDestroy(ctypes.c_void_p(ptr)))


def _make_module() -> ModuleType:
    module = ModuleType("torch._C._cudart", "The part of the CUDA runtime that PyTorch uses.")
    names: dict[str, Any] = {
        "cudaError": _CudaError,
        "cudaGetErrorString": _get_error_string,
        "cudaProfilerStart": _start_profiler,
        "cudaProfilerStop": _stop_profiler,
        "cudaHostRegister": _register_host_memory,
        "cudaHostUnregister": _unregister_host_memory,
        "cudaStreamCreate": _create_stream,
        "cudaStreamDestroy": _destroy_stream,
        "cudaMemGetInfo": _C.mem_get_info,
    }
    for name, value in names.items():
        setattr(module, name, value)
    return module


_cudart = _make_module()
