"""``torch.openreg.sanitizer``: finds races and other invalid accesses to device memory.

The sanitizer watches a program from `enable` to `disable`, inside ``with watch()``, or from its
first line if ``OPENREG_SANITIZER=1`` is set, as ``openreg sanitize`` does. The module is also
available as ``torch_openreg.sanitizer`` in both modes. ``docs/sanitizer.md`` describes what the
sanitizer finds and what it misses.

The sanitizer only checks tensors that are allocated after it was enabled.
"""

import os
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType, TracebackType
from typing import Any

from .finding import KINDS, Access, Block, Event, Finding, Frame, from_dict
from .reporter import Report, Reporter, print_finding
from .settings import Settings, from_environment, is_requested, parse_kinds
from .suppressions import Suppression
from .suppressions import read as read_suppressions

__all__ = [
    "KINDS",
    "Access",
    "Block",
    "Event",
    "Finding",
    "Frame",
    "Suppression",
    "Watch",
    "clear",
    "counts",
    "disable",
    "enable",
    "findings",
    "is_enabled",
    "watch",
]


def _extension() -> ModuleType:
    # Not imported at the top: `openreg sanitize` uses this package without PyTorch.
    from torch_openreg import _C

    return _C


class _Sanitizer:
    """The state from `enable` to `disable`."""

    def __init__(self, settings: Settings, report: Report, reporter: Reporter | None) -> None:
        self.settings, self.report, self.reporter = settings, report, reporter
        self.found: list[Finding] = []  # as of the last call of `all`
        self.leaks: list[Finding] = []  # found when the sanitizer is disabled
        self.cleared: list[int] = []  # the count of each finding at the last `clear`
        self.used: Counter[str] = Counter()  # number of findings that each suppression matched

    def start(self) -> None:
        _extension().sanitizer_start(
            self.on_finding, list(self.settings.kinds), self.settings.stacks
        )

    def forked(self) -> None:
        """Start over in a forked child, which does not share its parent's devices."""
        self.found, self.leaks, self.cleared, self.used = [], [], [], Counter()
        if self.reporter is not None:
            self.reporter.forked()
        self.start()

    def find_suppression(self, finding: Finding) -> Suppression | None:
        matching = (item for item in self.settings.suppressions if item.matches(finding))
        return next(matching, None)

    def on_finding(self, data: dict[str, Any]) -> None:
        """Handle a new finding. The extension calls this during a launch, on its thread."""
        try:
            finding = from_dict(data)
            if finding.kind == "leak":
                self.leaks.append(finding)
            suppression = self.find_suppression(finding)
            if suppression is not None:
                self.used[suppression.name] += 1
                return
            self.report(finding)
            if self.reporter is not None:
                self._fail_at_exit()
        except Exception:  # must not make the launch fail
            traceback.print_exc()

    def _fail_at_exit(self) -> None:
        # With a socket, `openreg sanitize` sets the exit status.
        if self.settings.socket is None and self.settings.exitcode != 0:
            _extension().sanitizer_set_exit_status(self.settings.exitcode)

    def all(self) -> list[Finding]:
        """Return all findings since `enable` with their counts, including suppressed ones."""
        if _active is self:
            self.found = [from_dict(data) for data in _extension().sanitizer_findings()]
        return self.found + self.leaks

    def since(self, before: list[int]) -> list[Finding]:
        """Return the findings that are not suppressed and whose counts have grown."""
        found = []
        for index, finding in enumerate(self.all()):
            count = finding.count - (before[index] if index < len(before) else 0)
            if count > 0 and self.find_suppression(finding) is None:
                found.append(replace(finding, count=count))
        return found

    def counts(self) -> list[int]:
        return [finding.count for finding in self.all()]


_active: _Sanitizer | None = None
_last: _Sanitizer | None = None  # the active one, or the one before it was disabled
_handles_forks = False


def _begin(sanitizer: _Sanitizer) -> None:
    global _active, _last, _handles_forks
    if _active is not None:
        raise RuntimeError("openreg: the sanitizer is already enabled: call disable() first")
    sanitizer.start()
    _active = _last = sanitizer
    if not _handles_forks:
        os.register_at_fork(after_in_child=_after_fork)
        _handles_forks = True


def _after_fork() -> None:
    if _active is not None:
        _active.forked()


# ---- for programs --------------------------------------------------------------------------------


def enable(
    *,
    only: Iterable[str] | None = None,
    stacks: bool = False,
    leaks: bool = False,
    suppressions: str | os.PathLike[str] | None = None,
    report: Report | None = print_finding,
) -> None:
    """Start watching the program.

    Parameters
    ----------
    only
        The kinds of findings to look for, from `KINDS`. The default is all kinds except leaks.
    stacks
        Whether to record whole stacks, including the frames of libraries.
    leaks
        Whether to report, in `disable`, memory that was allocated and not freed.
    suppressions
        The path of a file of findings to suppress.
    report
        A function to call with each new finding, on the thread of the second access. The default
        writes to stderr. It must not use devices.

    Raises
    ------
    RuntimeError
        If the sanitizer is already enabled.
    ValueError
        For an unknown kind, or an error in the file of suppressions.
    """
    settings = Settings(
        kinds=parse_kinds("" if only is None else ",".join(only), leaks),
        stacks=stacks,
        suppressions=tuple(read_suppressions(os.fspath(suppressions))) if suppressions else (),
    )
    _begin(_Sanitizer(settings, report or (lambda finding: None), None))


def disable() -> None:
    """Stop watching and keep the findings. Does nothing if the sanitizer is not enabled."""
    global _active
    if _active is None:
        return
    _active.all()
    _extension().sanitizer_stop()  # reports leaks
    _active = None


def is_enabled() -> bool:
    """Return whether the sanitizer is enabled."""
    return _active is not None


def findings() -> list[Finding]:
    """Return the findings since `enable` or `clear` with their counts, without suppressed ones."""
    return [] if _last is None else _last.since(_last.cleared)


def clear() -> None:
    """Clear `findings`. A finding that occurs again is in `findings` again, but not reported."""
    if _last is not None:
        _last.cleared = _last.counts()


def counts() -> dict[str, int]:
    """Return the statistics of the sanitizer. ``docs/sanitizer.md`` describes their names."""
    return _extension().sanitizer_counts()


class Watch:
    """A context manager that watches a part of a program. See `watch`."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._sanitizer: _Sanitizer | None = None
        self._before: list[int] = []
        self._found: list[Finding] | None = None

    def __enter__(self) -> "Watch":
        self._enables = _active is None
        if self._enables:
            enable(**({"report": None} | self._settings))
        assert _active is not None
        self._sanitizer, self._before = _active, _active.counts()
        self._found = None
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._sanitizer is not None
        if self._enables and _active is self._sanitizer:
            disable()
        self._found = self._sanitizer.since(self._before)

    def findings(self) -> list[Finding]:
        """Return the findings of the block, so far or until its end."""
        if self._found is not None or self._sanitizer is None:
            return self._found or []
        return self._sanitizer.since(self._before)


def watch(**settings: Any) -> Watch:
    """Watch a block: ``with watch() as watched``, then ``watched.findings()``.

    Parameters
    ----------
    **settings
        The parameters of `enable`. Without `report`, nothing is printed. If the sanitizer is
        already enabled, it keeps its settings and these have no effect.

    Returns
    -------
    Watch
        The context manager.
    """
    return Watch(**settings)


# ---- with OPENREG_SANITIZER=1 --------------------------------------------------------------------


def start_if_requested() -> None:
    """Watch the program from its start if OPENREG_SANITIZER is 1.

    Raises
    ------
    ValueError
        If a variable has a value that is not allowed.
    """
    if not is_requested() or _active is not None:
        return
    settings = from_environment()
    reporter = Reporter(settings)
    _begin(_Sanitizer(settings, reporter.finding, reporter))
    reporter.start()


def finish() -> None:
    """Print the summary at the end of the program, when no launch is running."""
    sanitizer = _active
    if sanitizer is None or sanitizer.reporter is None:
        return
    counters = counts()
    disable()
    sanitizer.reporter.end(sanitizer.since([]), sanitizer.used, counters)
