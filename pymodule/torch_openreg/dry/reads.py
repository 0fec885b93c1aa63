"""What the host read of values that a dry run did not compute."""

import os
import sys
import threading
from collections import Counter
from types import FrameType
from typing import NamedTuple

import torch

__all__ = ["Read", "record", "refuse", "report"]

_PACKAGE = os.path.dirname(__file__)
_FOLDERS = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, _PACKAGE)
)

_lock = threading.Lock()
_counts: "Counter[Read]" = Counter()


class Read(NamedTuple):
    """A place of the program that reads values which were not computed.

    `value` is what it got instead, as text. `operator` is PyTorch's name of the operator that read.
    """

    file: str
    line: int
    operator: str
    value: str


def _place() -> tuple[str, int]:
    """Return file and line of the innermost frame that belongs to the program."""
    frame: FrameType | None = sys._getframe(1)
    innermost = frame
    while frame is not None:
        if not os.path.abspath(frame.f_code.co_filename).startswith(_FOLDERS):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return ("", 0) if innermost is None else (innermost.f_code.co_filename, innermost.f_lineno)


def record(operator: str, value: str) -> Read:
    """Note that the host reads unknown values. The extension calls it on the thread that reads."""
    read = Read(*_place(), operator, value)
    with _lock:
        _counts[read] += 1
    return read


def refuse(operator: str, value: str) -> None:
    """Note it and raise RuntimeError (``--unknown=error``)."""
    read = record(operator, value)
    raise RuntimeError(
        f"openreg: {read.file}:{read.line}: {operator} reads a value that the dry run did not "
        "compute (--unknown=error)"
    )


def report() -> list[tuple[Read, int]]:
    """Return all places with the number of reads, in the order of the first read."""
    with _lock:
        return list(_counts.items())
