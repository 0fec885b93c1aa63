"""What all processes of a program found: `openreg sanitize` puts it together.

The same finding of several ranks is one, and counted. Nothing here needs PyTorch.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from . import text
from .suppressions import unused_sentence


class _Told:
    """A finding, and who found it."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.text, self.remedy = message["text"], message["remedy"]
        self.finding: dict[str, Any] = message["finding"]
        self.kind: str = self.finding["kind"]
        self.counts: dict[int, int] = {}  # of processes by their ids
        self.notes: dict[int, dict[str, str]] = {}

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
    """Takes messages of processes.

    Parameters
    ----------
    write
        Is given what is to be printed.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._findings: dict[str, _Told] = {}  # by their text
        self._of_process: dict[tuple[int, str], _Told] = {}  # by number of process and id
        self._suppressed: Counter[str] = Counter()
        self._suppressions: dict[str, None] = {}  # names of all, in their order
        self._counters: Counter[str] = Counter()
        self._processes: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self._findings

    def take(self, message: dict[str, Any]) -> None:
        """Take a message; what is none is ignored."""
        kind, pid = message.get("type"), message.get("pid")
        if not isinstance(pid, int):
            return
        self._processes.add(pid)
        if kind == "finding":
            self._take_finding(message, pid)
        elif kind == "end":
            self._take_end(message, pid)

    def _take_finding(self, message: dict[str, Any], pid: int) -> None:
        told = self._findings.get(message["text"])
        if told is None:
            told = self._findings[message["text"]] = _Told(message)
            self._write(text.with_notes(told.text, message["notes"].items()))
        told.counts.setdefault(pid, 1)
        told.notes.setdefault(pid, message["notes"])
        self._of_process[pid, str(message["id"])] = told

    def _take_end(self, message: dict[str, Any], pid: int) -> None:
        counts: dict[int, int] = {}
        for identity, count in message["counts"].items():
            told = self._of_process.get((pid, identity))
            if told is not None:  # two of a process may have one text
                counts[id(told)] = counts.get(id(told), 0) + count
                told.counts[pid] = counts[id(told)]
        self._suppressed.update(message["suppressed"])
        self._suppressions.update(dict.fromkeys(message["suppressions"]))
        self._counters.update(message["counters"])

    def _unused(self) -> list[str]:
        return [name for name in self._suppressions if name not in self._suppressed]

    def summary(self) -> str:
        """Return the last lines that are printed."""
        if not self._processes:
            return (
                f"{text.PREFIX}nothing was watched: no process of the command imported PyTorch "
                "with openreg\n"
            )
        findings = self._findings.values()
        processes = {pid for told in findings for pid in told.counts}
        counts = [(told.kind, told.count) for told in findings]
        lines = text.summary(counts, self._suppressed.total(), len(processes))
        return lines + unused_sentence(self._unused())

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "version": 1,
            "findings": [told.as_dict() for told in self._findings.values()],
            "processes": len(self._processes),
            "suppressed": self._suppressed,
            "unused_suppressions": self._unused(),
            "counters": self._counters,
        }
