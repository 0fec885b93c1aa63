"""Memory plans for the launches of this process (``OPENREG_MEMORY_PLANS``)."""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch_openreg import _C

from .ask import SOURCES, Plan, PlannedOutput, plan

__all__ = ["apply_variable", "use"]


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
) -> tuple[tuple[int, ...], list[int]] | None:
    """Return a plan's events, and the blocks of the fresh results."""
    namespace, _, name = operator.partition("::")
    if namespace == "openreg_host":  # stands for an operator of CUDA, and has more keywords
        operator = f"aten::{name}"
        keywords = {key: keywords[key] for key in keywords if key not in _OWN_KEYWORDS}
    answer: Plan | None = plan(operator, arguments, keywords, source=source)
    if answer is None or answer.error is not None:
        return None
    return answer.events, list(_blocks(answer.outputs))


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
    _C.set_memory_planner(None if source == "none" else functools.partial(_ask, source))


def apply_variable() -> None:
    """Apply ``OPENREG_MEMORY_PLANS``.

    Raises
    ------
    ImportError
        If the value is not allowed.
    """
    chosen = os.environ.get("OPENREG_MEMORY_PLANS", "") or "none"
    if chosen not in (*SOURCES, "none"):
        raise ImportError(
            f"openreg: OPENREG_MEMORY_PLANS={chosen}: expected none, planner, builtin or auto"
        )
    if chosen != "none":
        use(chosen)
