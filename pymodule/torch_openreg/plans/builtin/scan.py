"""Scans: cumulative sums, products, logarithms, maxima and minima, and masked_scatter.

Sources: ATen/native/cuda/ScanUtils.cuh (scan_dim), ScanKernels.cpp, IndexKernel.cpp
(masked_scatter_cuda), and ATen/native/ReduceOps.cpp (conversions).
"""

from .call import HALF, INTEGRAL, REAL, Call, Tensor, check, plans, wrap
from .cub import scan_bytes


@plans("cumsum", "cumprod", "logcumsumexp", "_logcumsumexp")
def cumulative(call: Call, self: Tensor, dim: int, *, dtype: str | None = None) -> None:
    """CUB's scan, where the tensor is one row; a copy of another dtype or a strided input."""
    of = dtype or ("int64" if self.dtype in INTEGRAL else self.dtype)
    check(of in (*REAL, "int64", "int32") and self.numel > 0, "complex or small numbers")
    is_row = not self.sizes or self.sizes[wrap(dim, len(self.sizes))] == self.numel
    check(not is_row or not call.is_deterministic or of not in REAL, "the deterministic scan")
    call.result(of, self.sizes)
    if not self.sizes:
        check(of == self.dtype, "a converted number")
        return
    copy = call.make(of, *self.sizes) if of != self.dtype else 0
    check(not copy or self.is_contiguous, "a converted copy of a strided input")
    second = call.contiguous(self)
    if is_row:
        item = self.like(of).item
        call.free(call.take(scan_bytes(self.numel, item, of not in HALF)))
    call.free(second, copy)


@plans("cummax", "cummin")
def cummax(call: Call, self: Tensor, dim: int) -> None:
    """A copy of a strided input."""
    call.result(self.dtype, self.sizes)
    call.result("int64", self.sizes)
    if self.sizes and self.numel > 0:
        call.free(call.contiguous(self))


def _masked_scatter(call: Call, self: Tensor, mask: Tensor, source: Tensor) -> None:
    check(mask.dtype == "bool" and self.numel > 0, "an empty input")
    blocks = [call.make("int64", self.numel)]
    if mask.sizes != self.sizes or not mask.is_contiguous:
        blocks.append(call.make("bool", self.numel))
    call.free(call.take(scan_bytes(self.numel, 8)))
    blocks.append(call.contiguous(source))
    call.free(*reversed(blocks))


@plans("masked_scatter")
def masked_scatter(call: Call, self: Tensor, mask: Tensor, source: Tensor) -> None:
    """The prefix sums of the mask."""
    check(len(mask.sizes) <= len(self.sizes) and self.is_contiguous, "a result of another size")
    call.result(self.dtype, self.sizes)
    _masked_scatter(call, self, mask, source)


@plans("masked_scatter_")
def masked_scatter_(call: Call, self: Tensor, mask: Tensor, source: Tensor) -> None:
    """The prefix sums of the mask."""
    check(self.is_contiguous, "a strided input")
    _masked_scatter(call, self, mask, source)
