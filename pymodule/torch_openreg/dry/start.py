"""Starts a dry run (``OPENREG_DRY_RUN``).

The extension decides for each launch whether its kernel runs (``bridge/tensor/known_values.h``).
"""

import functools
import os
from typing import Any

import torch

from torch_openreg import _C, variables

from . import checks, host_memory, meta_functions, objects, reads, report

__all__ = ["apply_variables"]

_LARGEST_KNOWN = 1 << 30

_not_modelled: list[str] = []


def _choice(name: str) -> str:
    """Return the value of a variable with two allowed values; the first one is the default."""
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


def _leave_out_compiling() -> None:
    """Let programs run as without torch.compile, and note if they call it.

    A compiled region would run its own code instead of PyTorch's operators.
    """
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    compile_ = torch.compile

    @functools.wraps(compile_)
    def noting(*arguments: Any, **keywords: Any) -> Any:
        sentence = "torch.compile: the program ran without it"
        if sentence not in _not_modelled:
            _not_modelled.append(sentence)
        return compile_(*arguments, **keywords)

    torch.compile = noting


def _represent_in_gloo() -> None:
    """Let groups of Gloo stand for all their ranks."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_gloo_available():
        for module in (torch._C._distributed_c10d, distributed.distributed_c10d, distributed):
            module.ProcessGroupGloo = _C.RepresentedGloo  # type: ignore[attr-defined]


def _complete(rank: report.Rank) -> None:
    """Add to a report what is special in a dry run."""
    from torch_openreg.plans.ask import count_estimates

    rank.is_dry = True
    rank.reads = [report.Read(*read, count) for read, count in reads.report()]
    running = os.environ.get("OPENREG_DRY_REPRESENT", "")
    if running:
        rank.notes.append(
            f"Rank {rank.rank} stood for all {os.environ.get('WORLD_SIZE', '')} ranks: each other "
            "rank counted as passing the same to collectives."
        )
    if "," in running:
        rank.notes.append("Groups whose ranks all ran were compared, and exchanged data.")
    if count_estimates() > 0:
        rank.notes.append("The workspaces of cuDNN's convolutions are estimates.")
    rank.not_modelled += _not_modelled


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
    _leave_out_compiling()
    if os.environ.get("OPENREG_DRY_REPRESENT"):
        _represent_in_gloo()
    os.environ.setdefault("OPENREG_MEMORY_PLANS", "auto")
    os.environ.setdefault("OPENREG_GPU_OVERHEAD", "1")
    os.environ.setdefault("OPENREG_LIBRARY_WORKSPACES", "cudnn:auto")
    os.environ.setdefault("OPENREG_REPORT", "text")
    report.complete_with(_complete)
    record = reads.refuse if _choice("OPENREG_DRY_UNKNOWN") == "error" else reads.record
    _C.start_dry_run(_known_bytes(), _choice("OPENREG_DRY_ROUTING") == "even", record)
    meta_functions.apply()
    checks.apply(record)
    host_memory.apply(record)
    objects.apply(record)
