"""Collects the findings of all processes of a program, for `openreg sanitize`.

The same finding of several ranks is one finding with a count. This module does not need PyTorch.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from . import text
from .suppressions import unused_sentence


class _Collected:
    """A finding, and the processes that found it."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.text, self.remedy = message["text"], message["remedy"]
        self.finding: dict[str, Any] = message["finding"]
        self.kind: str = self.finding["kind"]
        self.counts: dict[int, int] = {}  # by process id
        self.notes: dict[int, dict[str, str]] = {}  # by process id

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def as_dict(self) -> dict[str, Any]:
        processes = [
            {"pid": pid, "count": count, **self.notes[pid]} for pid, count in self.counts.items()
        ]
        return {
            **self.finding,
            "count": self.count,
            "processes": processes,
            "remedy": self.remedy,
            "text": self.text,
        }


class Collection:
    """The findings of all processes, built from their messages.

    Parameters
    ----------
    write
        A function that prints text.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._findings: dict[str, _Collected] = {}  # by text
        # By process id and id of the finding.
        self._of_process: dict[tuple[int, str], _Collected] = {}
        self._suppressed: Counter[str] = Counter()
        self._suppressions: dict[str, None] = {}  # the names of all, in order
        self._counters: Counter[str] = Counter()
        self._processes: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self._findings

    def add(self, message: dict[str, Any]) -> None:
        """Add a message of a process. Malformed messages are ignored."""
        kind, pid = message.get("type"), message.get("pid")
        if not isinstance(pid, int):
            return
        self._processes.add(pid)
        if kind == "finding":
            self._add_finding(message, pid)
        elif kind == "end":
            self._add_end(message, pid)

    def _add_finding(self, message: dict[str, Any], pid: int) -> None:
        known = self._findings.get(message["text"])
        if known is None:
            known = self._findings[message["text"]] = _Collected(message)
            self._write(text.with_notes(known.text, message["notes"].items()))
        known.counts.setdefault(pid, 1)
        known.notes.setdefault(pid, message["notes"])
        self._of_process[pid, str(message["id"])] = known

    def _add_end(self, message: dict[str, Any], pid: int) -> None:
        counts: dict[int, int] = {}
        for identity, count in message["counts"].items():
            known = self._of_process.get((pid, identity))
            if known is not None:  # two findings of a process may have the same text
                counts[id(known)] = counts.get(id(known), 0) + count
                known.counts[pid] = counts[id(known)]
        self._suppressed.update(message["suppressed"])
        self._suppressions.update(dict.fromkeys(message["suppressions"]))
        self._counters.update(message["counters"])

    def _unused(self) -> list[str]:
        return [name for name in self._suppressions if name not in self._suppressed]

    def summary(self) -> str:
        """Return the summary that is printed at the end."""
        if not self._processes:
            return (
                f"{text.PREFIX}nothing was watched: no process of the command imported PyTorch "
                "with openreg\n"
            )
        findings = self._findings.values()
        processes = {pid for known in findings for pid in known.counts}
        counts = [(known.kind, known.count) for known in findings]
        lines = text.summary(counts, self._suppressed.total(), len(processes))
        return lines + unused_sentence(self._unused())

    def as_dict(self) -> dict[str, Any]:
        """Return everything as a dictionary for JSON."""
        return {
            "version": 1,
            "findings": [known.as_dict() for known in self._findings.values()],
            "processes": len(self._processes),
            "suppressed": self._suppressed,
            "unused_suppressions": self._unused(),
            "counters": self._counters,
        }
