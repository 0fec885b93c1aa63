"""The Python part of ``torch.distributed._symmetric_memory`` for the devices.

Memory, signals and operators are in the extension. This module adds two things:

- The allocator for memory pools, which PyTorch only knows for CUDA.
- The operators that PyTorch implements in Python for CUDA only. Devices of a plugin use PyTorch's
  own fallbacks, which call the collectives one after the other and compute the same results.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from . import _C

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import GroupName

_library: torch.library.Library | None = None


def install(device_type: str) -> None:
    """Install both parts. Does nothing in a PyTorch without ``torch.distributed``."""
    if not hasattr(_C, "symmetric_memory_source") or not distributed.is_available():
        return
    _install_pool_allocator(device_type)
    if device_type != "cuda" and _library is None:
        _register_operators()


def _install_pool_allocator(device_type: str) -> None:
    handle = torch._C._distributed_c10d._SymmetricMemory
    find = handle.get_mempool_allocator

    def get_mempool_allocator(device: torch.device) -> Any:
        return _C.symmetric_memory_source() if device.type == device_type else find(device)

    handle.get_mempool_allocator = staticmethod(get_mempool_allocator)  # type: ignore[method-assign]


def _register_operators() -> None:
    global _library
    _library = torch.library.Library("symm_mem", "IMPL")
    for name in (
        "fused_all_gather_matmul",
        "fused_all_gather_scaled_matmul",
        "fused_matmul_reduce_scatter",
        "fused_scaled_matmul_reduce_scatter",
    ):
        _library.impl(name, _fallback(name), "PrivateUse1")
    _library.impl("_low_contention_all_gather", _all_gather, "PrivateUse1")
    _library.impl("_low_contention_reduce_scatter", _reduce_scatter, "PrivateUse1")
    _library.impl("get_remote_tensors", _get_remote_tensors, "PrivateUse1")


def _fallback(name: str) -> Any:
    def compute(*arguments: Any, **options: Any) -> Any:
        from torch.distributed import _symmetric_memory

        return getattr(_symmetric_memory, f"_{name}_fallback")(*arguments, **options)

    return compute


def _group_size(group_name: "GroupName") -> int:
    return distributed.distributed_c10d._get_group_size_by_name(group_name)


def _all_gather(tensor: torch.Tensor, group_name: "GroupName") -> torch.Tensor:
    gather = torch.ops._c10d_functional.all_gather_into_tensor
    return gather(tensor.contiguous(), _group_size(group_name), group_name)


def _reduce_scatter(tensor: torch.Tensor, reduce_op: str, group_name: "GroupName") -> torch.Tensor:
    scatter = torch.ops._c10d_functional.reduce_scatter_tensor
    return scatter(tensor.contiguous(), reduce_op, _group_size(group_name), group_name)


def _get_remote_tensors(local: torch.Tensor, group_name: "GroupName") -> tuple[torch.Tensor, ...]:
    from torch.distributed import _symmetric_memory

    return _symmetric_memory._get_remote_tensors_default(local, group_name)
