"""Which rank failed first, and the sentences about it.

Ranks exit, and before that they may report an exception. Both come in the order in which they
happened as far as the system tells; what came at once is judged by what can be the cause of what. A
process that is killed reports nothing, and its peers report that they lost it. A program that
catches what a lost peer raises, and exits, does so after the peer's report.
"""

import re
import signal
from collections.abc import Iterable


def _ranks(numbers: Iterable[int]) -> str:
    """Return a list of ranks in words: "ranks 0, 2-5"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    text = ", ".join("-".join(map(str, each)) for each in ranges)
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


def _end(status: int) -> str:
    """Return how a process ended, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


class Failures:
    """What became of the ranks so far. A status below 0 is that of a signal."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._statuses: dict[int, int] = {}  # in the order of exits
        self._reports: dict[int, str] = {}  # in the order of reports
        self._ours: set[int] = set()  # those that were told to end
        self.first: int | None = None

    def exited(self, rank: int, status: int) -> None:
        """Hear that a rank has ended."""
        self._statuses[rank] = status

    def raised(self, rank: int, report: str) -> None:
        """Hear what was printed about an exception that nobody caught, which may be nothing."""
        self._reports.setdefault(rank, report)

    def told_to_end(self, ranks: Iterable[int]) -> None:
        """Hear to which ranks a signal was sent."""
        self._ours.update(ranks)

    @property
    def first_is_told(self) -> bool:
        """Whether there is more to say of the first failure than how the process ended."""
        return self.first in self._reports

    def judge(self) -> bool:
        """Decide which rank failed first, if one did; returns whether that is news."""
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
        if self.first in self._reports and (status == 0 or self.first in self._ours):
            return 1  # that of an exception, from which the process did not come to its end
        return status

    def _later(self) -> dict[str, list[int]]:
        """Return what else failed by itself: what of which ranks."""
        later: dict[str, list[int]] = {}
        for rank in range(self._count):
            status = self._statuses.get(rank, 0)
            if rank == self.first:
                continue
            if report := self._reports.get(rank, "").rstrip():
                line = re.sub(r"^\[rank\d+\]: ", "", report.splitlines()[-1])
                later.setdefault(line, []).append(rank)
            elif status > 0 or (status < 0 and rank not in self._ours):
                later.setdefault(_end(status), []).append(rank)
        return later

    def sentences(self) -> str:
        """Return what to tell a person, which ends with the traceback of the first failure."""
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
