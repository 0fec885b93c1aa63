"""Measuring, goals, and the exit status of benchmarks.

A benchmark compares two functions within one run. Only the ratio of their times counts, because
machines are shared and noisy and absolute times mean little. Both functions take short turns of the
same length. Each ratio is between neighbouring turns, and the result is the median over all turns.
The printed spread is the middle half of the ratios.

Every row and every figure with a goal goes through `Goal.check`, which records missed goals. `run`
calls a benchmark's main function, lists the missed goals and sets the exit status.
"""

import gc
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import torch

Work = Callable[[], object]

# The exit status of a benchmark that finished and missed a goal. After an exception it is 1.
MISSED_STATUS = 3
# The environment variable that names a file to which a benchmark appends the goals that it missed.
MISSED_FILE = "OPENREG_BENCH_MISSED"

_missed: list[str] = []


# ---- measuring ----------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """One function's time divided by that of a reference, with the middle half of the turns.

    ``mine`` and ``reference`` are the medians of both sides, for scale only. They are nanoseconds
    per call unless the row says otherwise.
    """

    median: float
    low: float
    high: float
    mine: float
    reference: float

    def of_share(self, factor: float) -> "Ratio":
        """Return the ratio per share of the work, for example per replica."""
        return self._replace(
            median=self.median * factor, low=self.low * factor, high=self.high * factor
        )

    def as_rate(self) -> "Ratio":
        """Return the ratio of the rates."""
        return self._replace(median=1 / self.median, low=1 / self.high, high=1 / self.low)


def absolute(value: float, reference: float) -> Ratio:
    """Return the ratio of a value to a fixed reference."""
    ratio = value / reference
    return Ratio(ratio, ratio, ratio, value, reference)


def quartiles(ratios: Sequence[float], pairs: Iterable[tuple[float, float]]) -> Ratio:
    """Return the median and middle half of the ratios, and the medians of both sides."""
    low, median, high = statistics.quantiles(ratios, n=4)
    mine, reference = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Ratio(median, low, high, mine, reference)


def turn(work: Work, calls: int) -> float:
    """Return the seconds that `calls` calls take, including work that they queued."""
    start = time.perf_counter()
    for _ in range(calls):
        work()
    for index in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(index)  # queued work counts as well
    return time.perf_counter() - start


def _calls_per_turn(work: Work, seconds: float) -> int:
    calls = 1
    while (elapsed := turn(work, calls)) < seconds / 4:
        calls *= 2
    return max(1, round(calls * seconds / elapsed))


def time_ratio(
    work: Work,
    reference: Work,
    *,
    turns: int = 31,
    seconds: float = 0.02,
    enough_seconds: float = math.inf,
) -> Ratio:
    """Measure ``work`` against ``reference``.

    Parameters
    ----------
    work, reference : callable
        Called without arguments, equally often.
    turns : int
        The number of pairs of turns.
    seconds : float
        The intended length of one turn of the reference.
    enough_seconds : float
        After this time, five pairs of turns are enough.
    """
    for function in (work, reference):
        turn(function, 3)
    calls = _calls_per_turn(reference, seconds)
    pairs = []
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    try:
        for index in range(turns):
            if index >= 5 and time.perf_counter() - start > enough_seconds:
                break
            if index % 2:  # alternate the order, so that neither side has an advantage
                mine, other = turn(work, calls), turn(reference, calls)
            else:
                other, mine = turn(reference, calls), turn(work, calls)
            pairs.append((mine / calls * 1e9, other / calls * 1e9))
    finally:
        gc.enable()
    return quartiles([mine / other for mine, other in pairs], pairs)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return statistics.geometric_mean(values)


def one_thread() -> None:
    """Use one thread, for which the goals are stated."""
    torch.set_num_threads(1)


ROOT = Path(__file__).resolve().parent.parent


def built(program: str) -> Path:
    """Build a C benchmark as a release build under build/bench, and return its path."""
    build = ROOT / "build" / "bench"
    if not (build / "build.ninja").exists():
        options = ["-Dpymodule=false", "-Dbuildtype=release"]
        subprocess.run(["meson", "setup", build, ROOT, *options], check=True, capture_output=True)
    subprocess.run(["ninja", "-C", build, f"bench/{program}"], check=True, capture_output=True)
    return build / "bench" / program


# ---- goals --------------------------------------------------------------------------------------


class Goal(NamedTuple):
    """The goal of a figure: at most, at least, or none."""

    at_most: float | None = None
    at_least: float | None = None

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:.4g}"
        return "" if self.at_least is None else f">= {self.at_least:.4g}"

    def is_met(self, value: float) -> bool:
        """Return whether a figure meets the goal."""
        if self.at_most is not None:
            return value <= self.at_most
        return self.at_least is None or value >= self.at_least

    def check(self, what: str, value: float) -> str:
        """Return what to print after a figure. Records the goal if the figure misses it."""
        if self.is_met(value):
            return ""
        _missed.append(f"{what}: {value:.3f}, goal {self}")
        return "  missed"


class Table:
    """A table of ratios and their goals. Prints each row at once.

    Parameters
    ----------
    title, first_column : str
        The title of the table, and the heading of the rows' names.
    unit : str
        The unit of both sides, for scale only.
    """

    def __init__(self, title: str, first_column: str, unit: str = "ns") -> None:
        self._title, self._unit = title, unit
        print(f"\n{title}")
        print(f"{first_column:<44} {'goal':>9} {'ratio':>8} {'middle half':>15}  both sides")

    def measure(
        self,
        name: str,
        work: Work,
        reference: Work,
        *,
        turns: int = 31,
        seconds: float = 0.02,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Measure one function against another and print the row. ``at_least`` compares rates."""
        ratio = time_ratio(work, reference, turns=turns, seconds=seconds)
        ratio = ratio if at_least is None else ratio.as_rate()
        self.row(name, ratio, at_most=at_most, at_least=at_least)

    def row(
        self,
        name: str,
        ratio: Ratio,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Print one row. `unit` replaces the table's unit."""
        goal = Goal(at_most, at_least)
        median, low, high, mine, reference = ratio
        mark = goal.check(f"{self._title}: {name}", median)
        print(
            f"{name:<44} {goal!s:>9} {median:8.3f} {low:7.3f}-{high:7.3f}  "
            f"{mine:.4g} / {reference:.4g} {unit or self._unit}{mark}",
            flush=True,
        )


def run(main: Callable[[], None]) -> NoReturn:
    """Run a benchmark, list the missed goals, and exit: with status 0 if there are none."""
    gc.freeze()  # each measurement collects garbage, so keep existing objects out of it
    main()
    if not _missed:
        sys.exit(0)
    print(f"\n{len(_missed)} goals missed:")
    print("\n".join(f"  {line}" for line in _missed), flush=True)
    if path := os.environ.get(MISSED_FILE):
        with Path(path).open("a") as file:
            file.writelines(f"{line}\n" for line in _missed)
    sys.exit(MISSED_STATUS)
