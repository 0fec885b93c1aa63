"""Indexed writes that accumulate, which the gradient of indexing is, and means by index.

Sources: ATen/native/cuda/Indexing.cu (index_put_with_sort_kernel, computeLinearIndex) and
ATen/native/TensorAdvancedIndexing.cpp (scatter_reduce_two).
"""

import math

from .call import REAL, Call, Tensor, check, plans
from .cub import sort_bytes
from .reduce import reduce

INDEX_BYTES = 8


def _linear_index(call: Call, index: Tensor, checks: bool) -> int:
    """Check the range of an index, and make its positions."""
    if checks:
        limits = [call.make("int64") for _ in range(2)]
        row = index.like(sizes=(index.numel,))
        outputs = [index.dtype] * 2
        reduce(call, row, [0], outputs, 2 * index.item, accumulates_in_output=False)
        for _ in range(2):
            call.free(call.make("bool"))
        call.free(*limits)
    wrapped = call.take(index.nbytes)
    scaled = call.take(index.nbytes)
    call.free(wrapped)
    return scaled


@plans("_index_put_impl_", "index_put_")
def index_put_(
    call: Call,
    self: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> None:
    """Copy a number of the host. To accumulate, sort the positions and sum the values of each."""
    present = [each for each in indices if each is not None]
    check(all(each.dtype == "int64" and each.is_contiguous for each in present), "other indices")
    check(bool(present) and self.is_contiguous and self.numel > 0, "a strided tensor")
    check(not any(each.is_on_host for each in present), "indices on the host")
    check(len({each.sizes for each in present}) == 1, "indices of several sizes")
    check(not call.is_deterministic, "the deterministic kernel")
    copied = [call.take(values.nbytes)] if values.is_on_host else []
    if not accumulate:
        call.free(*copied)
        return
    first = next(number for number, each in enumerate(indices) if each is not None)
    check(all(each is not None for each in indices[first : first + len(present)]), "a gap")
    count = present[0].numel
    check(count > 0, "no indices")
    linear = 0
    for index in present:
        block = _linear_index(call, index, not unsafe)
        if linear:
            call.free(block)
        else:
            linear = block
    sizes = (
        *self.sizes[:first],
        *present[0].sizes,
        *self.sizes[first + len(present) :],
    )
    blocks = [linear]
    if values.sizes != sizes or not values.is_contiguous:
        blocks.append(call.make(self.dtype, *sizes))
    width = math.prod(self.sizes[first + len(present) :])
    blocks += [call.make("int64", count) for _ in range(3)]
    bits = (self.numel // max(width, 1)).bit_length()
    blocks.append(call.take(sort_bytes(call, count, INDEX_BYTES, INDEX_BYTES, bits)))
    call.free(*reversed(blocks), *copied)


@plans("index_put", "_unsafe_index_put")
def index_put(
    call: Call,
    self: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> None:
    """As in place, after a copy."""
    call.result(self.dtype, self.sizes)
    index_put_(call, self, indices, values, accumulate)


@plans("scatter_reduce.two")
def scatter_reduce(
    call: Call,
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> None:
    """Of means: ones, the counts of the results, and where they are zero."""
    check(reduce == "mean" and self.numel > 0 and index.numel > 0, "another reduction")
    check(not call.is_deterministic, "the deterministic kernel")
    call.result(self.dtype, self.sizes)
    blocks = [call.take(src.nbytes), call.take(self.nbytes), call.make("bool", self.numel)]
    call.free(*reversed(blocks))


@plans("index_reduce")
def index_reduce(
    call: Call,
    self: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> None:
    """Of means: the counts of the results, ones, and where they are zero."""
    check(reduce == "mean" and self.numel > 0 and index.numel > 0, "another reduction")
    check(not call.is_deterministic and self.dtype in REAL, "the deterministic kernel")
    call.result(self.dtype, self.sizes)
    counts = call.take(self.nbytes)
    call.free(call.take(source.nbytes))
    call.free(call.make("bool", self.numel), counts)
