"""The workspaces that NVIDIA's libraries take, as a setting: ``OPENREG_LIBRARY_WORKSPACES``.

The heuristics of these libraries decide the sizes and are not published. So a program says which
workspace each of their calls takes, such as ``cudnn:64M,cufft:8M``. With ``cudnn:auto`` the sizes
of the tensors decide (``builtin/cudnn.py``). Without cuDNN in the setting, convolutions run
PyTorch's own kernels, which take other memory.

This module does not import PyTorch.
"""

import functools
import os
import re

from torch_openreg import variables

__all__ = ["ESTIMATED", "LIBRARIES", "VARIABLE", "as_text", "parse", "workspaces"]

VARIABLE = "OPENREG_LIBRARY_WORKSPACES"
LIBRARIES = ("cudnn", "cufft", "cusolver", "cusparse")
ESTIMATED = -1  # in place of the bytes of cuDNN: the tensors decide

_EXPONENTS = {"": 0, "K": 10, "M": 20, "G": 30}
_PART = re.compile(r"(\w+):(\d+)([KMG]?)")
_ESTIMATED_PART = "cudnn:auto"


def parse(text: str) -> dict[str, int]:
    """Return the bytes of each library that the setting names, or ESTIMATED.

    Raises
    ------
    ValueError
        If the text is not such a setting.
    """
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        if part == _ESTIMATED_PART and "cudnn" not in found:
            found["cudnn"] = ESTIMATED
            continue
        match = _PART.fullmatch(part)
        if match is None or match[1] not in LIBRARIES or match[1] in found:
            raise ValueError(variables.rejection(VARIABLE, text))
        found[match[1]] = int(match[2]) << _EXPONENTS[match[3]]
    return found


def as_text(workspaces: dict[str, int]) -> str:
    """Return the setting of a planner, in which each call of a library takes the same."""
    return ",".join(f"{name}:{max(size, 0)}" for name, size in workspaces.items())


@functools.cache
def workspaces() -> dict[str, int]:
    """Return the setting of this process."""
    return parse(os.environ.get(VARIABLE, ""))
