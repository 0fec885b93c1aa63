"""What the built-in plans are written with: tensors, a device, and the memory of a call."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..dtypes import ITEM_BYTES

HALF = ("float16", "bfloat16")
REAL = (*HALF, "float32", "float64")
INTEGRAL = ("bool", "uint8", "int8", "int16", "int32", "int64")


class NoPlan(Exception):
    """There is no built-in plan for a call. The argument is a sentence."""


def check(condition: bool, reason: str) -> None:
    """Raise NoPlan unless the condition of a formula holds."""
    if not condition:
        raise NoPlan(reason)


class Device(NamedTuple):
    """What formulas depend on: a GPU's multiprocessors, threads of each, and architecture."""

    multiprocessors: int
    threads: int
    architecture: int  # 90 for compute capability 9.0
    # Its bytes, or ESTIMATED of libraries.py. None: convolutions do not use cuDNN.
    cudnn_workspace: int | None = None


class Tensor(NamedTuple):
    """A tensor argument, as ``signature.py`` describes it."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    storage: int = -1
    storage_bytes: int = 0
    flags: str = ""

    @property
    def numel(self) -> int:
        return math.prod(self.sizes)

    @property
    def item(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        return self.numel * self.item

    @property
    def is_on_host(self) -> bool:
        return "h" in self.flags

    @property
    def is_contiguous(self) -> bool:
        return self.numel == 0 or all(
            size == 1 or stride == expected
            for size, stride, expected in zip(
                self.sizes, self.strides, dense(self.sizes), strict=True
            )
        )

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie without gaps and overlaps, in any order of dimensions."""
        pairs = zip(self.sizes, self.strides, self.dense_order(), strict=True)
        return all(size == 1 or stride == expected for size, stride, expected in pairs)

    def dense_order(self, last: int | None = None) -> tuple[int, ...]:
        """Return dense strides in the order of the tensor's, perhaps with a dimension innermost."""
        order = sorted(range(len(self.sizes)), key=lambda dim: (self.strides[dim], -dim))
        if last is not None:
            order.remove(last)
            order.insert(0, last)
        strides, step = [0] * len(order), 1
        for dim in order:
            strides[dim] = step
            step *= max(self.sizes[dim], 1)
        return tuple(strides)

    def flattened(self) -> "Tensor | None":
        """Return the tensor as a view of one dimension, or None if that takes a copy."""
        step, count = 1, 1
        kept = [each for each in zip(self.sizes, self.strides, strict=True) if each[0] != 1]
        for size, stride in reversed(kept):
            if count == 1:
                step = stride
            elif stride != step * count:
                return None
            count *= size
        return self._replace(sizes=(self.numel,), strides=(step,))

    def transposed(self, one: int, other: int) -> "Tensor":
        """Return a view with two dimensions exchanged."""
        order = list(range(len(self.sizes)))
        order[one], order[other] = order[other], order[one]
        return self._replace(
            sizes=tuple(self.sizes[dim] for dim in order),
            strides=tuple(self.strides[dim] for dim in order),
        )

    def like(self, dtype: str | None = None, sizes: Sequence[int] | None = None) -> "Tensor":
        """Return a contiguous tensor with other sizes or another dtype."""
        sizes = self.sizes if sizes is None else tuple(sizes)
        return Tensor(dtype or self.dtype, sizes, dense(sizes))


def dense(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def up(number: int, divisor: int) -> int:
    """Return a quotient, rounded up."""
    return -(-number // divisor)


def up_to(number: int, multiple: int) -> int:
    """Return the next multiple."""
    return up(number, multiple) * multiple


def wrap(dim: int, count: int) -> int:
    """Return a dimension as a number from 0."""
    return dim + max(count, 1) if dim < 0 else dim


def accumulated(dtype: str) -> str:
    """Return the dtype in which CUDA's kernels compute (ATen/OpMathType.h)."""
    return {"float16": "float32", "bfloat16": "float32", "complex32": "complex64"}.get(dtype, dtype)


class Call:
    """A call: the device, PyTorch's settings, and the memory that it takes and frees."""

    def __init__(self, operator: str, device: Device, settings: tuple[Any, ...]) -> None:
        self.operator = operator
        self.device = device
        self.settings = settings
        self.events: list[int] = []
        self.results: list[tuple[int, Tensor]] = []  # the block, 0 for none
        self._count = 0

    @property
    def name(self) -> str:
        """The operator's name without namespace and overload."""
        return self.operator.partition("::")[2].partition(".")[0]

    @property
    def is_deterministic(self) -> bool:
        return bool(self.settings[1])

    def take(self, size: int) -> int:
        """Take a block of some bytes. Returns its number; no bytes take no block, which is 0."""
        if size == 0:
            return 0
        self.events.append(size)
        self._count += 1
        return self._count

    def free(self, *blocks: int) -> None:
        """Free blocks in this order."""
        self.events.extend(-block for block in blocks if block)

    def make(self, dtype: str, *sizes: int) -> int:
        """Take the block of a temporary tensor."""
        return self.take(ITEM_BYTES[dtype] * math.prod(sizes))

    def result(self, dtype: str, sizes: Sequence[int]) -> int:
        """Take the block of the next result."""
        block = self.make(dtype, *sizes)
        self.keep(block, dtype, sizes)
        return block

    def keep(self, block: int, dtype: str, sizes: Sequence[int]) -> None:
        """Make a block that was taken the next result."""
        self.results.append((block, Tensor(dtype, tuple(sizes), dense(sizes))))

    def contiguous(self, tensor: Tensor) -> int:
        """Take a contiguous copy of a tensor that is not contiguous."""
        return 0 if tensor.is_contiguous else self.take(tensor.nbytes)


Family = Callable[..., Sequence[int] | None]
FAMILIES: dict[str, Family] = {}


def plans(*operators: str) -> Callable[[Family], Family]:
    """Register a function for operators.

    The function gets a `Call`, and the operator's arguments by the names and defaults of the
    schema. It returns None if the results were taken in the order in which the operator returns
    them, otherwise a permutation of them.
    """

    def register(function: Family) -> Family:
        for operator in operators:
            FAMILIES[f"aten::{operator}"] = function
        return function

    return register
