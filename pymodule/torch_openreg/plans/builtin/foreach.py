"""Operators of lists.

Source: ATen/native/cuda/ForeachReduceOp.cu.
"""

import math
from typing import Any

from .call import HALF, REAL, Call, Tensor, accumulated, check, plans

CHUNK = 65536


def _parts(call: Call, tensors: list[Tensor], dtype: str) -> int:
    most = max(-(-each.numel // CHUNK) for each in tensors)
    return call.make(dtype, len(tensors) * most)


def _is_fast(tensors: list[Tensor]) -> bool:
    """All tensors have one dtype and are dense."""
    return len({each.dtype for each in tensors}) == 1 and all(
        each.is_contiguous and not each.is_on_host for each in tensors
    )


@plans("_foreach_norm.Scalar")
def foreach_norm(call: Call, self: list[Tensor], ord: Any = 2, dtype: str | None = None) -> None:
    """A result for each chunk of each tensor."""
    check(_is_fast(self) and self[0].dtype in REAL and self[0].numel > 0, "a loop of norms")
    check(all(each.numel > 0 for each in self), "an empty tensor")
    check(float(ord) in (1.0, 2.0, math.inf), "a loop of norms")
    of = dtype or self[0].dtype
    parts = _parts(call, self, accumulated(of) if self[0].dtype in HALF else of)
    for _ in self:
        call.result(of, ())
    call.free(parts)


@plans("_foreach_max")
def foreach_max(call: Call, self: list[Tensor]) -> None:
    """A result for each chunk of each tensor."""
    check(_is_fast(self) and all(each.numel > 0 for each in self), "a loop of maxima")
    for each in self:
        call.result(each.dtype, ())
    call.free(_parts(call, self, self[0].dtype))
