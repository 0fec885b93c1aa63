"""Reports findings to stderr or, if it started the program, to `openreg sanitize`."""

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
    """Write to the process's stderr, even if a test runner captures it."""
    plugin = sys.modules.get("_openreg_pytest")
    file = getattr(plugin, "stderr", 2)
    data = lines.encode(errors="backslashreplace")
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
        while data:
            data = data[os.write(file, data) :]
    except (OSError, ValueError):  # stderr is closed
        pass


def _identity(finding: Finding) -> int:
    """Return an id of a finding within this process. It does not depend on the count."""
    return hash(replace(finding, count=0))


def _notes() -> dict[str, str]:
    """Return what identifies this process: its rank and its test, if there are any."""
    notes = {}
    if rank := os.environ.get("RANK"):
        notes["rank"] = rank
    if test := os.environ.get("PYTEST_CURRENT_TEST"):
        notes["test"] = test.rpartition(" ")[0]
    return notes


class Reporter:
    """Reports each new finding, and the counts at the end.

    Parameters
    ----------
    settings
        The settings of the environment variables.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listener = settings.socket
        self._is_known = False  # whether `openreg sanitize` knows this process

    def forked(self) -> None:
        """Start over in a forked child. It registers with its first finding."""
        self._is_known = False

    def start(self) -> None:
        """Report that this process is watched."""
        self._is_known = True
        arguments = list(sys.orig_argv)
        self._send({"type": "start", "arguments": arguments})

    def finding(self, finding: Finding) -> None:
        """Report a finding."""
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
        """Report the count of each finding."""
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
            self._listener = None  # `openreg sanitize` has ended
            return False
        return True


Report = Callable[[Finding], None]


def print_finding(finding: Finding) -> None:
    """Write a finding to `sys.stderr`."""
    sys.stderr.write(text.with_notes(finding.text(), _notes().items()))
