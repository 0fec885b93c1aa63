"""Decides which rank failed first, and writes the sentences about it.

A rank exits, and may report an exception before. The launcher receives both in the order in which
they happened, as far as the system tells. Events that arrive together are ordered by what can cause
what: a process that is killed reports nothing, and then its peers report that they lost it; a
program that catches the error about a lost peer and exits does so after the peer's report.
"""

import re
import signal
from collections.abc import Iterable


def _ranks(numbers: Iterable[int]) -> str:
    """Return a list of ranks as text, such as "ranks 0, 2-5"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    text = ", ".join("-".join(map(str, each)) for each in ranges)
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


def _end(status: int) -> str:
    """Return how a process ended, as text."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


class Failures:
    """The failures of a job so far. A negative status means that a signal ended the process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._statuses: dict[int, int] = {}  # in the order of the exits
        self._reports: dict[int, str] = {}  # in the order of the reports
        self._terminated: set[int] = set()  # ranks to which the launcher sent a signal to end
        self.first: int | None = None

    def exited(self, rank: int, status: int) -> None:
        """Record that a rank has ended."""
        self._statuses[rank] = status

    def raised(self, rank: int, report: str) -> None:
        """Record the traceback of an exception that a rank did not catch. It may be empty."""
        self._reports.setdefault(rank, report)

    def terminated(self, ranks: Iterable[int]) -> None:
        """Record that the launcher sent these ranks a signal to end."""
        self._terminated.update(ranks)

    @property
    def first_has_report(self) -> bool:
        """Whether the first rank that failed reported an exception."""
        return self.first in self._reports

    def judge(self) -> bool:
        """Decide which rank failed first; return True once, when the decision is made."""
        if self.first is not None:
            return False
        silent = [rank for rank in self._statuses if rank not in self._reports]
        killed = [rank for rank in silent if self._statuses[rank] < 0]
        exited = [rank for rank in silent if self._statuses[rank] > 0]
        self.first = next(iter([*killed, *self._reports, *exited]), None)
        return self.first is not None

    def status(self) -> int:
        """Return the status of the first rank that failed; 0 if none did."""
        if self.first is None:
            return 0
        status = self._statuses[self.first]
        if self.first in self._reports and (status == 0 or self.first in self._terminated):
            return 1  # as Python exits after an exception; the process was ended before it could
        return status

    def _later(self) -> dict[str, list[int]]:
        """Return the other failures that the launcher did not cause: the ranks of each text."""
        later: dict[str, list[int]] = {}
        for rank in range(self._count):
            status = self._statuses.get(rank, 0)
            if rank == self.first:
                continue
            if report := self._reports.get(rank, "").rstrip():
                line = re.sub(r"^\[rank\d+\]: ", "", report.splitlines()[-1])
                later.setdefault(line, []).append(rank)
            elif status > 0 or (status < 0 and rank not in self._terminated):
                later.setdefault(_end(status), []).append(rank)
        return later

    def sentences(self) -> str:
        """Return the report for the user. It ends with the traceback of the first failure."""
        if self.first is None:
            return ""
        lines = [
            f"openreg: {_ranks(ranks)} failed later: {what}\n"
            for what, ranks in self._later().items()
        ]
        report = self._reports.get(self.first, "").rstrip("\n")
        lines.append(
            f"openreg: rank {self.first} of {self._count} failed first and ended the job: "
            f"{_end(self.status())}\n" + (report and f"{report}\n")
        )
        return "".join(lines)
