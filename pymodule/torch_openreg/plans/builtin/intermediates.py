"""Operators that reduce what they have computed first: logsumexp, distances, isin.

Sources: ATen/native/ReduceOps.cpp, Distance.cpp and TensorCompare.cpp, and
ATen/native/cuda/DistanceKernel.cu.
"""

from .call import REAL, Call, Tensor, check, plans
from .iterator import dense_like
from .reduce import reduce, sum_up
from .reductions import dims_of, norm, reduced

FEW_TESTS, FEW_TESTS_POWER = 10, 0.145  # of isin


@plans("logsumexp")
def logsumexp(call: Call, self: Tensor, dim: list[int], keepdim: bool = False) -> None:
    """Maxima, their checks, exponentials, and a sum."""
    check(self.dtype in REAL and self.numel > 0 and bool(self.sizes), "an empty or converted input")
    dims = dims_of(self, dim)
    sizes = reduced(self, dims, True)
    maxima = call.make(self.dtype, *sizes)
    reduce(call, self, dims, [self.dtype], self.item)
    absolute = call.make(self.dtype, *sizes)
    call.free(call.make("bool", *sizes), absolute)
    exponentials = call.take(self.nbytes)
    call.result(self.dtype, reduced(self, dims, keepdim))
    sum_up(call, dense_like(self, self.dtype), dims, self.dtype)
    call.free(exponentials, maxima)


@plans("dist")
def dist(call: Call, self: Tensor, other: Tensor, p: float = 2) -> None:
    """The norm of a difference."""
    check(self.sizes == other.sizes and self.dtype == other.dtype, "operands of two sizes")
    difference = call.take(self.nbytes)
    norm(call, dense_like(self, self.dtype), p)
    call.free(difference)


@plans("_cdist_backward")
def cdist_backward(
    call: Call, grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor
) -> None:
    """The gradient of each pair of rows, and its sum."""
    check(x1.sizes[:-2] == x2.sizes[:-2] and p > 0, "batches of two sizes")
    check(x1.is_contiguous and x2.is_contiguous and grad.numel > 0, "strided operands")
    copy = call.contiguous(grad)
    call.result(x1.dtype, x1.sizes)
    count, rows, width = x1.sizes[-2], x2.sizes[-2], x1.sizes[-1]
    pairs = x1.like(sizes=(grad.numel // (count * rows), rows, count, width))
    block = call.take(pairs.nbytes)
    sum_up(call, pairs, [1], x1.dtype)
    call.free(block, copy)


@plans("isin.Tensor_Tensor")
def isin(
    call: Call,
    elements: Tensor,
    test_elements: Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> None:
    """All comparisons, unless there are too many."""
    count = test_elements.numel
    check(not invert and count > 0 and elements.numel > 0, "an empty or inverted test")
    check(count < FEW_TESTS * elements.numel**FEW_TESTS_POWER, "tests by sorting")
    call.result("bool", elements.sizes)
    compared = elements.like("bool", (elements.numel, count))
    blocks = [call.take(compared.nbytes), call.make("bool", elements.numel)]
    reduce(call, compared, [1], ["bool"], 1)
    call.free(*reversed(blocks))
