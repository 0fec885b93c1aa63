"""Memory plans for the launches of this process (``OPENREG_MEMORY_PLANS``)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch_openreg import _C

from .ask import Plan, PlannedOutput, plan

__all__ = ["apply_variable", "use_planner"]


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
