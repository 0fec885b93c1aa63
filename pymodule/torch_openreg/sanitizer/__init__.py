"""``torch.openreg.sanitizer``: finds accesses to device memory that nothing orders.

A program is watched from `enable` to `disable`, in a ``with watch()``, or from its first line where
``OPENREG_SANITIZER=1`` is set, as ``openreg sanitize`` does. In both modes its name is also
``torch_openreg.sanitizer``. What it finds and what it does not is said in ``docs/sanitizer.md``.

What is known is what happened since it began to watch: tensors that were allocated before are not
looked at.
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
from .settings import Settings, from_environment, is_asked_for, kinds_named
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
    # Not at the top: `openreg sanitize` needs this package, and does not import PyTorch.
    from torch_openreg import _C

    return _C


class _Sanitizer:
    """What is known from `enable` to `disable`."""

    def __init__(self, settings: Settings, report: Report, reporter: Reporter | None) -> None:
        self.settings, self.report, self.reporter = settings, report, reporter
        self.found: list[Finding] = []  # as it was when it was last asked for
        self.leaks: list[Finding] = []  # which are found at the very end
        self.cleared: list[int] = []  # how often each had been found at `clear`
        self.used: Counter[str] = Counter()  # suppressions, and how many findings each kept silent

    def start(self) -> None:
        _extension().sanitizer_start(
            self.found_one, list(self.settings.kinds), self.settings.stacks
        )

    def forked(self) -> None:
        """Begin anew in a child, which knows nothing of what its parent's devices do."""
        self.found, self.leaks, self.cleared, self.used = [], [], [], Counter()
        if self.reporter is not None:
            self.reporter.forked()
        self.start()

    def suppression(self, finding: Finding) -> Suppression | None:
        matching = (item for item in self.settings.suppressions if item.matches(finding))
        return next(matching, None)

    def found_one(self, told: dict[str, Any]) -> None:
        """Is called by the extension, on the thread that did it, in the middle of a launch."""
        try:
            finding = from_dict(told)
            if finding.kind == "leak":
                self.leaks.append(finding)
            suppression = self.suppression(finding)
            if suppression is not None:
                self.used[suppression.name] += 1
                return
            self.report(finding)
            if self.reporter is not None:
                self._fail_at_exit()
        except Exception:  # which is no mistake of the launch
            traceback.print_exc()

    def _fail_at_exit(self) -> None:
        # With a socket `openreg sanitize` exits with the status.
        if self.settings.socket is None and self.settings.exitcode != 0:
            _extension().sanitizer_set_exit_status(self.settings.exitcode)

    def all(self) -> list[Finding]:
        """Return all with their counts, suppressed ones too, since `enable`."""
        if _active is self:
            self.found = [from_dict(told) for told in _extension().sanitizer_findings()]
        return self.found + self.leaks

    def since(self, before: list[int]) -> list[Finding]:
        """Return what is not suppressed and was found more often than before."""
        found = []
        for index, finding in enumerate(self.all()):
            count = finding.count - (before[index] if index < len(before) else 0)
            if count > 0 and self.suppression(finding) is None:
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
        raise RuntimeError("openreg: the sanitizer is enabled already: call disable() before")
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
    """Watch the program from now on.

    Parameters
    ----------
    only
        Kinds, as in `KINDS`; all but leaks, if not given.
    stacks
        Whether stacks are whole, with the frames of libraries.
    leaks
        Whether to find, when it is disabled, what was allocated and is not freed.
    suppressions
        A file of findings that are not to be told.
    report
        What is called with each new finding, on the thread that did the second access; writes to
        stderr, if not given. It must not use devices.

    Raises
    ------
    RuntimeError
        If it is enabled already.
    ValueError
        For a kind that is none, or a mistake in the file.
    """
    settings = Settings(
        kinds=kinds_named("" if only is None else ",".join(only), leaks),
        stacks=stacks,
        suppressions=tuple(read_suppressions(os.fspath(suppressions))) if suppressions else (),
    )
    _begin(_Sanitizer(settings, report or (lambda finding: None), None))


def disable() -> None:
    """Watch no longer. What was found stays. Nothing happens if it is not enabled."""
    global _active
    if _active is None:
        return
    _active.all()
    _extension().sanitizer_stop()  # which tells of leaks
    _active = None


def is_enabled() -> bool:
    """Whether the program is watched."""
    return _active is not None


def findings() -> list[Finding]:
    """Return what was found since `enable` or `clear` and is not suppressed, with counts."""
    return [] if _last is None else _last.since(_last.cleared)


def clear() -> None:
    """Forget what was found. What is found again is in `findings` again, but not told again."""
    if _last is not None:
        _last.cleared = _last.counts()


def counts() -> dict[str, int]:
    """Return what the sanitizer did and did not do, by the names of `docs/sanitizer.md`."""
    return _extension().sanitizer_counts()


class Watch:
    """What `watch` returns: watches a part of a program."""

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
        """Return what was found in the block, until now or until it ended."""
        if self._found is not None or self._sanitizer is None:
            return self._found or []
        return self._sanitizer.since(self._before)


def watch(**settings: Any) -> Watch:
    """Return a context manager: what is found in its block is in ``findings()`` of it.

    Parameters
    ----------
    **settings
        Those of `enable`, without `report` nothing is printed. If the sanitizer is enabled already
        it stays as it is, and they have no effect.
    """
    return Watch(**settings)


# ---- where OPENREG_SANITIZER is set --------------------------------------------------------------


def start_if_asked() -> None:
    """Watch the program from its begin, if the variable says so.

    Raises
    ------
    ValueError
        For a variable with a value that is not allowed.
    """
    if not is_asked_for() or _active is not None:
        return
    settings = from_environment()
    reporter = Reporter(settings)
    _begin(_Sanitizer(settings, reporter.finding, reporter))
    reporter.start()


def finish() -> None:
    """Tell what there is to tell at the end of the program, when no launch runs any more."""
    sanitizer = _active
    if sanitizer is None or sanitizer.reporter is None:
        return
    counters = counts()
    disable()
    sanitizer.reporter.end(sanitizer.since([]), sanitizer.used, counters)
