"""Built-in memory plans: closed forms of the memory that PyTorch's CUDA operators take and free.

They cover the families of operators that hold most bytes, and need no CUDA build. Each file has a
family and names its sources.

- ``call.py``: what the families are written with.
- ``iterator.py``, ``reduce.py``: the kernel of reductions.
- ``cub.py``: the temporary memory of CUB's algorithms.

No module of this package imports PyTorch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..client import Plan, PlannedOutput
from . import (  # noqa: F401 - their import registers the operators
    batch_norm,
    convolution,
    convolution_backward,
    copies,
    efficient_attention,
    embedding,
    flash_attention,
    foreach,
    indexing,
    intermediates,
    losses,
    normalization,
    products,
    recurrent,
    reductions,
    scan,
    softmax,
    sort,
)
from .call import FAMILIES, Call, Device, NoPlan, Tensor

__all__ = ["Device", "compute", "plan"]


class _Reader:
    """Makes arguments from their description by ``signature.py``."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []

    def read(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.read(each) for each in value]
        if not isinstance(value, tuple):
            return value
        if value[0] == "tensor":
            self._tensors.append(Tensor(*value[1:]))
            return self._tensors[-1]
        return self._tensors[value[1]] if value[0] == "again" else value[1]


def compute(
    operator: str,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    settings: tuple[Any, ...],
    device: Device,
) -> Plan | None:
    """Return the plan of a signature, or None if there is no formula for it.

    The outputs are those that are fresh, without strides.
    """
    family = FAMILIES.get(operator)
    if family is None:
        return None
    reader, call = _Reader(), Call(operator, device, settings)
    given = [reader.read(each) for each in arguments]
    named = {name: reader.read(each) for name, each in keywords.items()}
    try:
        order = family(call, *given, **named)
    except NoPlan:
        return None
    results = call.results if order is None else [call.results[number] for number in order]
    sizes = [event for event in call.events if event > 0]
    return Plan(
        tuple(
            PlannedOutput("block", block, each.dtype, each.sizes, (), 0, sizes[block - 1])
            for block, each in results
            if block
        ),
        tuple(call.events),
    )


def plan(
    operator: str,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    settings: tuple[Any, ...],
    device: Device,
) -> Plan | None:
    """Return the plan of a signature, or None if no formula expects its arguments."""
    try:
        return compute(operator, arguments, keywords, settings, device)
    except Exception:  # a plan that is missing must not end a program
        return None
