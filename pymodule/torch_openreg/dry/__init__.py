"""Dry runs (``OPENREG_DRY_RUN``): memory is allocated as on a GPU, but large kernels do not run.

The extension decides for each launch whether its kernel runs (``bridge/tensor/known_values.h``).
This package starts a dry run, and records what the host reads of values that were not computed
(`reads`).
"""

import os

from torch_openreg import _C, variables

from . import reads

__all__ = ["apply_variables", "reads"]

_LARGEST_KNOWN = 1 << 30


def _choice(name: str) -> str:
    """Return the value of a variable with two allowed values, of which the first is the default."""
    first, _, second = variables.get(name).allowed.partition(" or ")
    value = os.environ.get(name, "") or variables.get(name).default
    if value not in (first, second):
        raise ImportError(variables.rejection(name, value))
    return value


def _known_bytes() -> int:
    name = "OPENREG_DRY_KNOWN_BYTES"
    text = os.environ.get(name, "") or variables.get(name).default
    number, unit = (text[:-1], text[-1]) if text[-1] in "KMG" else (text, "")
    bytes_ = int(number) << " KMG".index(unit or " ") * 10 if number.isdecimal() else -1
    if not number.isascii() or not 0 <= bytes_ <= _LARGEST_KNOWN:
        raise ImportError(variables.rejection(name, text))
    return bytes_


def apply_variables() -> None:
    """Start a dry run if ``OPENREG_DRY_RUN`` is 1.

    Raises
    ------
    ImportError
        If a variable has a value that is not allowed, or excludes a dry run.
    """
    if _choice("OPENREG_DRY_RUN") == "0":
        return
    for other in ("OPENREG_SANITIZER", "OPENREG_DEBUG_MEMORY"):
        if os.environ.get(other, "0") not in ("", "0"):
            raise ImportError(
                f"openreg: {other}={os.environ[other]} checks what kernels do, and a dry run "
                "(OPENREG_DRY_RUN=1) does not run them: unset one of the two"
            )
    # A compiled region would run its own code instead of PyTorch's operators.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    os.environ.setdefault("OPENREG_MEMORY_PLANS", "auto")
    _C.start_dry_run(
        _known_bytes(),
        _choice("OPENREG_DRY_ROUTING") == "even",
        reads.refuse if _choice("OPENREG_DRY_UNKNOWN") == "error" else reads.record,
    )
