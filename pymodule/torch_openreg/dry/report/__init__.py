"""The report of a run: whether it fits, what held the memory, and where it ran out.

`start` begins to record, when PyTorch is imported. `finish` makes the report of the run so far. At
exit openreg prints the report and writes it to the files of ``OPENREG_REPORT``. The report works
for every run, dry or not. docs/dry-run.md explains it.

`model` has the report as data. `recorder` and the allocation log of the bridge record. `timeline`,
`groups` and `analysis` evaluate. `text`, `page` and `output` write.
"""

import atexit
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .model import Rank, Read, Report
from .output import FILES, files_of, hand_over, is_requested

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["Rank", "Read", "Report", "complete_with", "finish", "start", "start_if_requested"]

_recorder: "Recorder | None" = None
_completions: list[Callable[[Rank], None]] = []
_error: BaseException | None = None  # that ended the program


def _note_error(error: BaseException) -> None:
    global _error
    if not isinstance(error, SystemExit):
        _error = error


def _watch_errors() -> None:
    """Remember the exception that ends the program."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _note_error(error)
        previous(kind, error, trace)

    sys.excepthook = hook


def start() -> None:
    """Begin to record. Call it before a device is used; later calls have no effect."""
    global _recorder
    if _recorder is not None:
        return
    from .recorder import Recorder

    _recorder = Recorder()
    _recorder.install()
    _watch_errors()
    atexit.register(_finish_at_exit)


def start_if_requested() -> None:
    """Begin to record if OPENREG_REPORT is set.

    Raises
    ------
    ImportError
        If the variable has an invalid value.
    """
    if not is_requested():
        return
    try:
        files_of(os.environ[FILES])
    except ValueError as error:
        raise ImportError(f"openreg: {FILES}={error}") from None
    start()


def complete_with(complete: Callable[[Rank], None]) -> None:
    """Register a function that completes the report of this process: its reads and notes."""
    _completions.append(complete)


def _last_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def finish() -> Report:
    """Return the report of this process so far.

    Raises
    ------
    RuntimeError
        If `start` was not called.
    """
    if _recorder is None:
        raise RuntimeError("openreg: nothing was recorded: call start() before a device is used")
    from .analysis import analyse

    _recorder.label()
    rank = analyse(_recorder, int(os.environ.get("RANK") or 0))
    error = _error or getattr(sys, "last_value", None)
    if error is not None and not isinstance(error, SystemExit):
        rank.error = _last_line(error)
        rank.is_out_of_memory = _is_out_of_memory(error)
    for complete in _completions:
        complete(rank)
    device_type = os.environ.get("OPENREG_DEVICE_TYPE") or "openreg"
    return Report(
        command=list(sys.argv),
        device_type=device_type,
        world=int(os.environ.get("WORLD_SIZE") or 1),
        ranks=[rank],
        is_represented=bool(os.environ.get("OPENREG_DRY_REPRESENT")),
    )


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception, or what it was raised from, is an out-of-memory error."""
    import torch

    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, torch.OutOfMemoryError):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def _finish_at_exit() -> None:
    from torch_openreg import _C

    if _C.in_bad_fork():
        return
    report = finish()
    if report.ranks[0].devices:
        hand_over(report)
