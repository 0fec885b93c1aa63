"""The names in ``torch._C`` for CUDA's libraries: NVTX, cuBLAS, cuDNN and others.

Of most libraries ``torch.cuda`` only needs the settings.
"""

import threading
from types import ModuleType
from typing import Any

import torch._C

from torch_openreg import _C

__all__ = [
    "_CUDAGraph",
    "_CUDAGreenContext",
    "_can_use_flash_attention",
    "_can_use_mem_efficient_attention",
    "_cuda_cudaHostAllocator",
    "_cuda_getCurrentBlasHandle",
    "_cuda_getCurrentSolverHandle",
    "_cuda_get_conv_benchmark_empty_cache",
    "_cuda_get_cudnn_benchmark_limit",
    "_cuda_jiterator_compile_and_launch_kernel",
    "_cuda_set_cudnn_benchmark_limit",
    "_cudnn_set_conv_benchmark_empty_cache",
    "_nvtx",
]


def _unsupported(name: str, reason: str) -> Any:
    """Return a class whose constructor raises NotImplementedError."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: {reason}")

    return type(name, (), {"__new__": refuse, "create": staticmethod(refuse)})


_CUDAGraph = _C.CUDAGraph
_CUDAGreenContext = _unsupported(
    "torch.cuda.GreenContext", "openreg cannot divide a device into parts"
)

# ---- attention -----------------------------------------------------------------------------------


def _can_use(kernel: Any, params: Any, debug: bool) -> bool:
    return _C.can_use_attention(
        kernel,
        params.query,
        params.key,
        params.value,
        params.attn_mask,
        params.dropout,
        params.is_causal,
        params.enable_gqa,
        debug,
    )


def _can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    return _can_use(torch._C._SDPBackend.FLASH_ATTENTION, params, debug)


def _can_use_mem_efficient_attention(params: Any, debug: bool = False) -> bool:
    return _can_use(torch._C._SDPBackend.EFFICIENT_ATTENTION, params, debug)


# ---- NVTX ----------------------------------------------------------------------------------------


class _OpenRanges(threading.local):
    """The ranges that the thread has pushed; None for one that no profiler recorded."""

    def __init__(self) -> None:
        self.ranges: list[Any] = []


def _make_nvtx() -> ModuleType:
    handles, mine = 0, _OpenRanges()

    def push(message: str) -> int:
        ranges = None
        if torch._C._autograd._profiler_enabled():
            from torch.autograd.profiler import record_function

            ranges = record_function(message)
            ranges.__enter__()
        mine.ranges.append(ranges)
        return len(mine.ranges) - 1

    def pop() -> int:
        if not mine.ranges:
            return -1
        if (innermost := mine.ranges.pop()) is not None:
            innermost.__exit__(None, None, None)
        return len(mine.ranges)

    def mark(message: str) -> None:
        push(message)
        pop()

    def start(message: str, *stream: Any) -> int:
        nonlocal handles
        handles += 1
        return handles

    module = ModuleType("torch._C._nvtx", "NVTX ranges, which PyTorch's profiler records.")
    for name, value in {
        "rangePushA": push,
        "rangePop": pop,
        "rangeStartA": start,
        "rangeEnd": lambda handle: None,
        "markA": mark,
        "deviceRangeStart": start,
        "deviceRangeEnd": lambda handle, stream: None,
    }.items():
        setattr(module, name, value)
    return module


_nvtx = _make_nvtx()

# ---- cuBLAS, cuSOLVER, cuDNN, jiterator ----------------------------------------------------------

_cudnn = {"limit": 10, "empty_cache": True}


def _cuda_getCurrentBlasHandle() -> int:
    raise NotImplementedError("torch.cuda.current_blas_handle: openreg has no cuBLAS")


def _cuda_getCurrentSolverHandle() -> int:
    raise NotImplementedError("torch.cuda.current_solver_handle: openreg has no cuSOLVER")


def _cuda_cudaHostAllocator() -> int:
    raise NotImplementedError("_cuda_cudaHostAllocator: openreg has no cudaHostAllocator")


def _cuda_jiterator_compile_and_launch_kernel(*arguments: Any) -> Any:
    from . import jiterator

    return jiterator.compile_and_launch(*arguments)


def _refuse_nvrtc() -> Any:
    raise NotImplementedError("torch.cuda._compile_kernel: openreg cannot compile CUDA kernels")


def finish() -> None:
    """Refuse to load libraries of CUDA, after the import of PyTorch."""
    from torch.cuda import _utils

    _utils._get_gpu_rtc_library = _refuse_nvrtc


def _cuda_get_cudnn_benchmark_limit() -> int:
    return int(_cudnn["limit"])


def _cuda_set_cudnn_benchmark_limit(arg: int) -> None:
    _cudnn["limit"] = arg


def _cuda_get_conv_benchmark_empty_cache() -> bool:
    return bool(_cudnn["empty_cache"])


def _cudnn_set_conv_benchmark_empty_cache(enable: bool) -> None:
    _cudnn["empty_cache"] = enable
