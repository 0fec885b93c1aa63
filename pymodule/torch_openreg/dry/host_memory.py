"""Python's side of host memory in a dry run (``bridge/launch/dry_host.h``)."""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from torch_openreg import _C

__all__ = ["apply"]

# A smaller file is read as always: the program may write it again while it uses the tensors.
_LARGE_BYTES = 256 << 20


def _note_reads(name: str, record: Callable[[str, str], Any]) -> None:
    """Let a method of tensors record that it gives unknown values to the program."""
    method = getattr(torch.Tensor, name)

    @functools.wraps(method)
    def noting(self: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        is_ordinary = type(self) in (torch.Tensor, torch.nn.Parameter)
        # What comes from a device was recorded when it was copied.
        if is_ordinary and self.device.type == "cpu" and not _C.is_known(self):
            record(f"Tensor.{name}", f"{self.numel()} zeros")
        return method(self, *arguments, **keywords)

    setattr(torch.Tensor, name, noting)


def _is_large_archive(file: Any) -> bool:
    """Return whether a file was written by torch.save, in a format that can be mapped."""
    try:
        if os.path.getsize(file) < _LARGE_BYTES:
            return False
        with open(file, "rb") as opened:
            return opened.read(4) == b"PK\x03\x04"
    except (OSError, TypeError, ValueError):
        return False


def _map_files() -> None:
    """Let ``torch.load`` map large files, unless the program says something else.

    Then values that nobody reads are not read from the file either. Copies of large tensors to
    a device read nothing in a dry run.
    """
    load = torch.load

    @functools.wraps(load)
    def mapping(f: Any, *arguments: Any, mmap: bool | None = None, **keywords: Any) -> Any:
        if mmap is None and isinstance(f, str | os.PathLike) and _is_large_archive(f):
            mmap = True
        return load(f, *arguments, mmap=mmap, **keywords)

    torch.load = mapping


def apply(record: Callable[[str, str], Any]) -> None:
    """Start it. `record` gets the operator that reads unknown values, and what it got."""
    for name in ("numpy", "tolist", "__array__"):
        _note_reads(name, record)
    _map_files()
