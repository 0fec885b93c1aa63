"""``torch.distributed._symmetric_memory`` for the devices: what its Python expects of a build.

Memory, signals and operators are in the extension, where PyTorch finds them. Here is the rest.
Memory pools: a build with CUDA knows what allocates for them. And operators that are Python, for
``torch.cuda`` alone: devices of a plugin have what PyTorch computes in their place when it is told
to test, with collectives one after the other, and the same results.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from . import _C

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import GroupName

_library: torch.library.Library | None = None


def install(device_type: str) -> None:
    """Give the module what it lacks; do nothing in a PyTorch without ``torch.distributed``."""
    if not hasattr(_C, "symmetric_memory_source") or not distributed.is_available():
        return
    _serve_pools(device_type)
    if device_type != "cuda" and _library is None:
        _register_operators()


def _serve_pools(device_type: str) -> None:
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
        _library.impl(name, _one_after_the_other(name), "PrivateUse1")
    _library.impl("_low_contention_all_gather", _all_gather, "PrivateUse1")
    _library.impl("_low_contention_reduce_scatter", _reduce_scatter, "PrivateUse1")
    _library.impl("get_remote_tensors", _get_remote_tensors, "PrivateUse1")


def _one_after_the_other(name: str) -> Any:
    def compute(*arguments: Any, **options: Any) -> Any:
        from torch.distributed import _symmetric_memory

        return getattr(_symmetric_memory, f"_{name}_fallback")(*arguments, **options)

    return compute


def _size_of(group_name: "GroupName") -> int:
    return distributed.distributed_c10d._get_group_size_by_name(group_name)


def _all_gather(tensor: torch.Tensor, group_name: "GroupName") -> torch.Tensor:
    gather = torch.ops._c10d_functional.all_gather_into_tensor
    return gather(tensor.contiguous(), _size_of(group_name), group_name)


def _reduce_scatter(tensor: torch.Tensor, reduce_op: str, group_name: "GroupName") -> torch.Tensor:
    scatter = torch.ops._c10d_functional.reduce_scatter_tensor
    return scatter(tensor.contiguous(), reduce_op, _size_of(group_name), group_name)


def _get_remote_tensors(local: torch.Tensor, group_name: "GroupName") -> tuple[torch.Tensor, ...]:
    from torch.distributed import _symmetric_memory

    return _symmetric_memory._get_remote_tensors_default(local, group_name)
