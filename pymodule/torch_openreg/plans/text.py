"""Signatures and plans as text, for ``openreg plans show`` and for tests.

An argument is a tensor such as ``float32[64,768]``, with strides ``float32[64,768;1,64]``, or on
the host ``host:float32[]``; ``4*float32[1000]`` for a list of four tensors; a list in brackets; a
dtype such as ``float32``; a device, ``cuda`` or ``cpu``; or a number, True, False, None or 'text'.


This module does not import PyTorch.
"""

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .client import Plan, PlannedOutput
from .dtypes import ITEM_BYTES

_TENSOR = re.compile(
    r"(?:(?P<count>\d+)\*)?(?P<host>host:)?(?P<dtype>\w+)\[(?P<sizes>[\d,]*)(?:;(?P<strides>[\d,]*))?\]"
)


class Parser:
    """Parses the arguments of one call."""

    def __init__(self) -> None:
        self._storages = 0

    def parse(self, text: str) -> Any:
        """Return an argument as ``signature.py`` describes it.

        Raises
        ------
        ValueError
            If the text is no argument.
        """
        text = text.strip()
        found = _TENSOR.fullmatch(text)
        if found and found["dtype"] in ITEM_BYTES:
            if found["count"]:
                return [self._tensor(found) for _ in range(int(found["count"]))]
            return self._tensor(found)
        if text in ITEM_BYTES:
            return ("dtype", text)
        if text in ("cuda", "cpu"):
            return ("device", text)
        if text.startswith("[") and text.endswith("]"):
            return [self.parse(part) for part in _split(text[1:-1])]
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            value = ()
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return value
        raise ValueError(
            f"openreg: {text!r} is no argument: expected a tensor such as float32[64,768], a "
            "dtype, a device, a number, True, False, None, 'text', or a list of these in brackets"
        )

    def _tensor(self, found: re.Match[str]) -> tuple[Any, ...]:
        sizes = _numbers(found["sizes"])
        strides = _numbers(found["strides"]) if found["strides"] is not None else _dense(sizes)
        if len(strides) != len(sizes):
            raise ValueError(f"openreg: {found[0]}: expected as many strides as sizes")
        elements = 0
        if 0 not in sizes:
            elements = 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        self._storages += 1
        flags = "h" if found["host"] else ""
        size = elements * ITEM_BYTES[found["dtype"]]
        return ("tensor", found["dtype"], sizes, strides, 0, self._storages - 1, size, flags)


def parse_call(texts: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
    """Parse the arguments of a call: values, and names with values, such as ``dim=0``.

    Raises
    ------
    ValueError
        If a text is no argument.
    """
    parser = Parser()
    given: list[Any] = []
    named: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            named[name] = parser.parse(value)
        else:
            given.append(parser.parse(text))
    return given, named


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _dense(sizes: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


def describe_plan(plan: Plan) -> list[str]:
    """Return lines that show a plan."""
    if plan.error is not None:
        return [f"raises {plan.error[0]}: {plan.error[1].splitlines()[0]}"]
    lines = [f"returns {_describe(output)}" for output in plan.outputs]
    count = 0
    for event in plan.events:
        count += event > 0
        lines.append(
            f"takes block {count}: {event} bytes" if event > 0 else f"frees block {-event}"
        )
    return lines


def _describe(output: Any) -> str:
    if isinstance(output, list):
        return f"[{', '.join(map(_describe, output))}]"
    if not isinstance(output, PlannedOutput):
        return repr(output)
    if output.where == "argument":
        return f"the tensor argument {output.number}"
    sizes = ",".join(map(str, output.sizes))
    strides = ",".join(map(str, output.strides))
    where = {
        "block": f"in block {output.number}",
        "alias": f"in the memory of argument {output.number}",
        "empty": "without memory",
        "host": "on the host",
    }[output.where]
    layout = f"{sizes};{strides}" if strides or not sizes else sizes
    return f"{output.dtype}[{layout}] {where}"
