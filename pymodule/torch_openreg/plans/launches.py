"""Memory plans for the launches of this process (``OPENREG_MEMORY_PLANS``)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch_openreg import _C

from .ask import Plan, PlannedOutput, plan

__all__ = ["apply_variable", "use_planner"]


# Where dropout's random words begin (bridge/operators/attention/launches.cpp).
_OWN_KEYWORDS = {"seed", "offset", "seed_address", "offset_address"}


def _blocks(outputs: Sequence[Any]) -> Iterator[int]:
    for output in outputs:
        if isinstance(output, list):
            yield from _blocks(output)
        elif isinstance(output, PlannedOutput) and output.where == "block":
            yield output.number


def _ask(
    operator: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[tuple[int, ...], list[int]] | None:
    """Return a plan's events, and the blocks of the fresh results."""
    namespace, _, name = operator.partition("::")
    if namespace == "openreg_host":  # stands for an operator of CUDA, and has more keywords
        operator = f"aten::{name}"
        keywords = {key: keywords[key] for key in keywords if key not in _OWN_KEYWORDS}
    answer: Plan | None = plan(operator, arguments, keywords)
    if answer is None or answer.error is not None:
        return None
    return answer.events, list(_blocks(answer.outputs))


def use_planner(enabled: bool) -> None:
    """Let launches take and free device memory as CUDA's operators do.

    Launches ask the planner once for each signature.
    """
    _C.set_memory_planner(_ask if enabled else None)


def apply_variable() -> None:
    """Apply ``OPENREG_MEMORY_PLANS``.

    Raises
    ------
    ImportError
        If the value is not allowed.
    """
    chosen = os.environ.get("OPENREG_MEMORY_PLANS", "") or "none"
    if chosen not in ("none", "planner"):
        raise ImportError(f"openreg: OPENREG_MEMORY_PLANS={chosen}: expected none or planner")
    if chosen == "planner":
        use_planner(True)
