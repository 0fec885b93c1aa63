"""Memory plans for the launches of this process (``OPENREG_MEMORY_PLANS``)."""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from torch_openreg import _C, _in_cuda_mode

from .ask import SOURCES, PlannedOutput, plan
from .libraries import workspaces

__all__ = ["apply_variable", "summary_line", "use"]


# Where dropout's random words begin (bridge/operators/attention/launches.cpp).
_OWN_KEYWORDS = {"seed", "offset", "seed_address", "offset_address"}


def _blocks(outputs: Sequence[Any]) -> Iterator[int]:
    for output in outputs:
        if isinstance(output, list):
            yield from _blocks(output)
        elif isinstance(output, PlannedOutput) and output.where == "block":
            yield output.number


def _ask(
    source: str, operator: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[tuple[int, ...], list[int], str] | None:
    """Return a plan's events, the blocks of the fresh results, and the source that answered."""
    namespace, _, name = operator.partition("::")
    if namespace == "openreg_host":  # stands for an operator of CUDA, and has more keywords
        operator = f"aten::{name}"
        keywords = {key: keywords[key] for key in keywords if key not in _OWN_KEYWORDS}
    answer = plan(operator, arguments, keywords, source=source)
    if answer is None or answer.error is not None:
        return None
    return answer.events, list(_blocks(answer.outputs)), answer.source


def summary_line(device: int) -> str:
    """Return how many launches on a device had which plans; empty if launches have no plans."""
    if not _C.has_memory_planner():
        return ""
    counts = _C.planned_launches(device)
    each = ", ".join(f"{source} {count}" for source, count in counts.items())
    return f"Memory plans of {sum(counts.values())} launches: {each}\n"


@functools.cache
def _add_to_summary_of_cuda() -> None:
    """Add openreg's line to PyTorch's function ``torch.cuda.memory_summary``."""
    summary = torch.cuda.memory.memory_summary

    @functools.wraps(summary)
    def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
        index = torch.cuda._utils._get_device_index(device, optional=True)
        return summary(device, abbreviated) + summary_line(index)

    torch.cuda.memory.memory_summary = torch.cuda.memory_summary = memory_summary


def use(source: str) -> None:
    """Let launches take and free device memory as CUDA's operators do.

    Launches ask for a plan once for each signature.

    Parameters
    ----------
    source
        ``planner``, ``builtin`` or ``auto``, as for `ask.plan`; or ``none``: launches take their
        results only.

    Raises
    ------
    ValueError
        If there is no such source.
    """
    if source not in (*SOURCES, "none"):
        raise ValueError(
            f"openreg: there is no source of memory plans {source!r}: "
            f"expected none, {', '.join(SOURCES[:-1])} or {SOURCES[-1]}"
        )
    if source != "none" and _in_cuda_mode():
        _add_to_summary_of_cuda()
    _C.set_memory_planner(None if source == "none" else functools.partial(_ask, source))


def apply_variable() -> None:
    """Apply ``OPENREG_MEMORY_PLANS``, and read ``OPENREG_LIBRARY_WORKSPACES``.

    Raises
    ------
    ImportError
        If a value is not allowed.
    """
    chosen = os.environ.get("OPENREG_MEMORY_PLANS", "") or "none"
    if chosen not in (*SOURCES, "none"):
        raise ImportError(
            f"openreg: OPENREG_MEMORY_PLANS={chosen}: expected none, planner, builtin or auto"
        )
    try:
        workspaces()
    except ValueError as error:
        raise ImportError(str(error)) from None
    if chosen != "none":
        use(chosen)
