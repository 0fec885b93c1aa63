"""The dimensions of a reduction, in the order and form in which CUDA's kernels get them.

Source: ATen/TensorIterator.cpp (reorder_dimensions, coalesce_dimensions, with_32bit_indexing).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..dtypes import ITEM_BYTES
from .call import Tensor, dense

MAX_INT = 2**31 - 1


@dataclass
class Reduction:
    """An iterator of a reduction: its outputs first, then the input. Strides are in bytes."""

    sizes: list[int]
    strides: list[list[int]]  # by operand
    offset: int  # of the input, in bytes

    @property
    def output(self) -> list[int]:
        return self.strides[0]

    @property
    def input(self) -> list[int]:
        return self.strides[-1]

    @property
    def numel(self) -> int:
        return math.prod(self.sizes)

    @property
    def reduced_dims(self) -> int:
        return sum(step == 0 for step in self.output)

    @property
    def outputs(self) -> int:
        return math.prod(
            size for size, step in zip(self.sizes, self.output, strict=True) if step or size == 0
        )

    def fits_32_bits(self) -> bool:
        return self.numel <= MAX_INT and all(
            1 + sum((size - 1) * step for size, step in zip(self.sizes, each, strict=True))
            <= MAX_INT
            for each in self.strides
        )

    def parts(self) -> Iterator["Reduction"]:
        """Split until each part fits 32 bits."""
        rest = [self]
        while rest:
            part = rest.pop()
            while not part.fits_32_bits():
                extents = [
                    max((part.sizes[dim] - 1) * abs(each[dim]) for each in part.strides)
                    for dim in range(len(part.sizes))
                ]
                dim = max(range(len(extents)), key=lambda dim: (extents[dim], dim))
                size = part.sizes[dim]
                low = Reduction(list(part.sizes), part.strides, part.offset)
                low.sizes[dim] = size // 2
                high = Reduction(
                    list(part.sizes), part.strides, part.offset + size // 2 * part.input[dim]
                )
                high.sizes[dim] = size - size // 2
                rest.append(high)
                part = low
            yield part


def _swap(one: int, other: int, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> int:
    for number, each in enumerate(strides):
        first, second = each[one], each[other]
        if number < len(strides) - 1 and (first == 0) != (second == 0):
            return 1 if second == 0 else -1
        if first == 0 or second == 0:
            continue
        if first != second:
            return 1 if first > second else -1
        if sizes[one] > sizes[other]:
            return 1
    return 0


def reduction(self: Tensor, dims: Sequence[int], outputs: Sequence[str]) -> Reduction:
    """Return the iterator that reduces dimensions of a tensor to contiguous outputs."""
    count = len(self.sizes)
    kept = dense([1 if dim in dims else size for dim, size in enumerate(self.sizes)])
    strides = [
        [0 if dim in dims else kept[dim] * ITEM_BYTES[dtype] for dim in range(count)]
        for dtype in outputs
    ]
    strides.append([step * self.item for step in self.strides])
    order = list(reversed(range(count)))
    for i in range(1, count):
        moved = i
        for j in reversed(range(i)):
            comparison = _swap(order[j], order[moved], self.sizes, strides)
            if comparison > 0:
                order[j], order[moved] = order[moved], order[j]
                moved = j
            elif comparison < 0:
                break
    sizes = [self.sizes[dim] for dim in order]
    strides = [[each[dim] for dim in order] for each in strides]
    last = 0
    for dim in range(1, count):
        if (
            sizes[last] == 1
            or sizes[dim] == 1
            or all(sizes[last] * each[last] == each[dim] for each in strides)
        ):
            if sizes[last] == 1:
                for each in strides:
                    each[last] = each[dim]
            sizes[last] *= sizes[dim]
        else:
            last += 1
            sizes[last] = sizes[dim]
            for each in strides:
                each[last] = each[dim]
    if count:
        sizes = sizes[: last + 1]
        strides = [each[: last + 1] for each in strides]
    return Reduction(sizes, strides, self.offset * self.item)


def dense_like(tensor: Tensor, dtype: str) -> Tensor:
    """Return the copy of a tensor in another dtype, which keeps the order of its dimensions.

    A tensor with gaps or overlaps becomes a contiguous one (``empty_like`` in
    ATen/native/TensorFactories.cpp).
    """
    step = 1
    for size, stride in sorted(
        zip(tensor.sizes, tensor.strides, strict=True), key=lambda each: each[1]
    ):
        if size != 1 and stride != step:
            return tensor.like(dtype)
        step *= size
    return Tensor(dtype, tensor.sizes, tensor.strides)
