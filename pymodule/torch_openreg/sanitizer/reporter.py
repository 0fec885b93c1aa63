"""Who is told of a finding: whoever has the process's stderr, or `openreg sanitize`."""

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from . import messages, text
from .finding import Finding
from .remedies import remedy
from .settings import Settings
from .suppressions import unused_sentence


def _write(lines: str) -> None:
    """Write to stderr, past what a test runner has put in its place."""
    plugin = sys.modules.get("_openreg_pytest")
    file = getattr(plugin, "stderr", 2)
    data = lines.encode(errors="backslashreplace")
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
        while data:
            data = data[os.write(file, data) :]
    except (OSError, ValueError):  # it is closed: nobody wants to know
        pass


def _identity(finding: Finding) -> int:
    """Return what tells a finding of this process from its others, whatever its count."""
    return hash(replace(finding, count=0))


def _notes() -> dict[str, str]:
    """Return what else tells one process of a program from another."""
    notes = {}
    if rank := os.environ.get("RANK"):
        notes["rank"] = rank
    if test := os.environ.get("PYTEST_CURRENT_TEST"):
        notes["test"] = test.rpartition(" ")[0]
    return notes


class Reporter:
    """Tells of findings as the variables say, and of how many there were at the end.

    Parameters
    ----------
    settings
        What the variables say.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listener = settings.socket
        self._is_known = False  # to the one who listens

    def forked(self) -> None:
        """Begin anew in a child, which is known when it has something to tell."""
        self._is_known = False

    def start(self) -> None:
        """Tell that this process is watched."""
        self._is_known = True
        arguments = list(sys.orig_argv)
        self._send({"type": "start", "arguments": arguments})

    def finding(self, finding: Finding) -> None:
        """Tell of a finding."""
        if not self._is_known:
            self.start()
        lines, notes = text.block(finding, self._settings.stacks), _notes()
        message: dict[str, object] = {
            "type": "finding",
            "id": _identity(finding),
            "notes": notes,
            "text": lines,
            "remedy": remedy(finding),
            "finding": finding.as_dict(),
        }
        if not self._send(message):
            _write(text.with_notes(lines, notes.items()))

    def end(self, findings: list[Finding], used: Counter[str], counters: dict[str, int]) -> None:
        """Tell how often everything was found."""
        if not self._is_known:
            return
        names = [suppression.name for suppression in self._settings.suppressions]
        message: dict[str, object] = {
            "type": "end",
            "counts": {str(_identity(finding)): finding.count for finding in findings},
            "suppressed": used,
            "suppressions": names,
            "counters": counters,
        }
        if self._send(message):
            return
        counts = [(finding.kind, finding.count) for finding in findings]
        if counts or used:
            _write(text.summary(counts, used.total()))
        _write(unused_sentence(name for name in names if name not in used))

    def _send(self, message: dict[str, object]) -> bool:
        if self._listener is None:
            return False
        if not messages.send(self._listener, {"pid": os.getpid(), **message}):
            self._listener = None  # it has ended before its child
            return False
        return True


Report = Callable[[Finding], None]


def print_finding(finding: Finding) -> None:
    """Write a finding to `sys.stderr`."""
    sys.stderr.write(text.with_notes(finding.text(), _notes().items()))
