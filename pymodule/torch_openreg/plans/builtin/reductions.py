"""Reductions: sum, mean, prod, norm, var, max, min, any, all, argmax and their relatives.

Sources: ATen/native/ReduceOps.cpp (which copies and results), ATen/native/cuda/ReduceOps.cpp and
Reduce*Kernel.cu (what a thread accumulates, how many elements it loads at once).
"""

from collections.abc import Sequence
from typing import Any

from ..dtypes import ITEM_BYTES
from .call import HALF, INTEGRAL, REAL, Call, Tensor, accumulated, check, plans, wrap
from .iterator import dense_like
from .reduce import reduce, sum_up

# A thread of a reduction with indices holds a value and an index of 64 bits, aligned.
WITH_INDEX_BYTES = 16
# Welford's algorithm: mean and squares in the accumulated dtype, two counts (int32 and the dtype).
WELFORD_BYTES = {"float32": 16, "float64": 32}
WELFORD_VECTOR = 2


def dims_of(self: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    count = len(self.sizes)
    if isinstance(dim, int):
        return [wrap(dim, count)] if count else []
    return sorted(wrap(each, count) for each in dim) if dim and count else list(range(count))


def reduced(self: Tensor, dims: Sequence[int], keepdim: bool) -> list[int]:
    return [
        1 if dim in dims else size
        for dim, size in enumerate(self.sizes)
        if keepdim or dim not in dims
    ]


def _cast(call: Call, self: Tensor, dtype: str) -> tuple[Tensor, int]:
    """Convert the input. The kernel reads 16 bits and writes 32 without a copy."""
    if self.dtype == dtype or (self.dtype in HALF and dtype == "float32"):
        return self, 0
    return dense_like(self, dtype), call.make(dtype, *self.sizes)


@plans("sum", "sum.dim_IntList", "nansum", "mean", "mean.dim", "prod", "prod.dim_int")
def sum_(
    call: Call,
    self: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: str | None = None,
) -> None:
    """Sums, means and products accumulate in 32 bits where the dtype has 16."""
    of = dtype or ("int64" if self.dtype in INTEGRAL else self.dtype)
    dims = dims_of(self, dim)
    call.result(of, reduced(self, dims, keepdim))
    source, copy = _cast(call, self, of)
    if of in HALF and call.name == "prod":  # its parts accumulate in the output
        reduce(call, source, dims, [of], ITEM_BYTES[accumulated(of)])
    else:
        sum_up(call, source, dims, of)
    call.free(copy)


@plans("linalg_vector_norm", "norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dtype")
def norm(
    call: Call,
    self: Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: str | None = None,
) -> None:
    """ATen/native/LinearAlgebra.cpp and cuda/ReduceNormKernel.cu."""
    of = dtype or self.dtype
    check(of in REAL, "the norm of real numbers")
    dims = dims_of(self, dim)
    call.result(of, reduced(self, dims, keepdim))
    if self.numel == 0 or all(self.sizes[each] == 1 for each in dims):
        if self.numel and of != self.dtype:  # abs of a copy
            call.free(call.make(of, *self.sizes))
        return
    source, copy = _cast(call, self, of)
    sum_up(call, source, dims, of)
    call.free(copy)


@plans("amax", "amin")
def amax(call: Call, self: Tensor, dim: Any = (), keepdim: bool = False) -> None:
    """cuda/ReduceMaxValuesKernel.cu."""
    dims = dims_of(self, dim)
    call.result(self.dtype, reduced(self, dims, keepdim))
    reduce(call, self, dims, [self.dtype], self.item)


@plans("max", "min")
def max_all(call: Call, self: Tensor) -> None:
    """ATen/native/ReduceAllOps.cpp: a contiguous copy, reduced as one row."""
    call.result(self.dtype, [])
    copy = call.contiguous(self)
    row = self._replace(sizes=(self.numel,), strides=(1,), offset=0 if copy else self.offset)
    reduce(call, row, [0], [self.dtype], self.item)
    call.free(copy)


@plans("max.dim", "min.dim")
def max_dim(call: Call, self: Tensor, dim: int, keepdim: bool = False) -> None:
    """cuda/ReduceMaxValuesKernel.cu: pairs of a value and an index."""
    dims = dims_of(self, dim)
    outputs = [self.dtype, "int64"]
    for dtype in outputs:
        call.result(dtype, reduced(self, dims, keepdim))
    if self.sizes:
        reduce(call, self, dims, outputs, WITH_INDEX_BYTES, accumulates_in_output=False)


@plans("aminmax", "_aminmax", "_aminmax.dim")
def aminmax(call: Call, self: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    """cuda/ReduceMinMaxKernel.cu: pairs of values."""
    dims = dims_of(self, dim)
    sizes = reduced(self, dims, keepdim)
    for _ in range(2):
        call.result(self.dtype, sizes)
    copy = call.contiguous(self) if dim is None else 0
    source = self.like() if copy else self
    reduce(call, source, dims, [self.dtype] * 2, 2 * self.item, accumulates_in_output=False)
    call.free(copy)


@plans("argmax", "argmin")
def argmax(call: Call, self: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    """cuda/ReduceArgMaxKernel.cu. Without a dimension the input is one row, perhaps a copy."""
    dims = dims_of(self, dim)
    call.result("int64", reduced(self, dims, keepdim))
    if dim is None:
        row, copy = self.flattened(), 0
        if row is None:
            row, copy = self.like(sizes=(self.numel,)), call.take(self.nbytes)
        reduce(call, row, [0], ["int64"], WITH_INDEX_BYTES, accumulates_in_output=False)
        call.free(copy)
    elif self.sizes and self.sizes[dims[0]] != 1:
        reduce(call, self, dims, ["int64"], WITH_INDEX_BYTES, accumulates_in_output=False)


@plans("any", "all", "any.dim", "all.dim", "any.dims", "all.dims")
def any_(call: Call, self: Tensor, dim: Any = None, keepdim: bool = False) -> None:
    """cuda/ReduceLogicKernel.cu: bytes, of any dtype."""
    dims = dims_of(self, dim)
    of = "uint8" if self.dtype == "uint8" else "bool"
    call.result(of, reduced(self, dims, keepdim))
    if self.numel == 1:
        call.free(call.make("bool") if self.dtype != "bool" else 0)
    else:
        reduce(call, self, dims, [of], 1)


@plans(
    *(f"{name}.correction" for name in ("var", "std", "var_mean", "std_mean")),
    *("var", "std", "var_mean", "std_mean", "var.dim", "std.dim", "var_mean.dim", "std_mean.dim"),
)
def var(
    call: Call,
    self: Tensor,
    dim: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> None:
    """cuda/ReduceMomentKernel.cu: Welford's algorithm."""
    check(self.dtype in REAL and not isinstance(dim, bool), "the variance of real numbers")
    dims = dims_of(self, dim)
    outputs = [self.dtype] * (2 if call.name.endswith("_mean") else 1)
    for dtype in outputs:
        call.result(dtype, reduced(self, dims, keepdim))
    reduce(call, self, dims, outputs, WELFORD_BYTES[accumulated(self.dtype)], WELFORD_VECTOR, False)


@plans("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(call: Call, self: Tensor, dim: Any = None) -> None:
    """ATen/native/TensorAdvancedIndexing.cpp: the sum of a comparison."""
    block = 0 if self.dtype == "bool" else call.make("bool", *self.sizes)
    sum_(call, dense_like(self, "bool"), dim)
    call.free(block)
