"""How the benchmarks measure: two functions in turn, within one run, and only their ratio.

The machines are shared and noisy: their absolute times mean little. Both functions run in short
turns of the same length, each ratio is taken between neighbouring turns, and the median over all
turns is the result. The spread that is printed beside it is the middle half of the ratios.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

Work = Callable[[], object]


class Ratio(NamedTuple):
    """Time of one function over the time of another."""

    median: float
    low: float
    high: float
    reference_ns: float  # of one call of the reference, for scale only


def _turn(work: Work, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    for index in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(index)  # what was only queued must be done as well
    return time.perf_counter() - start


def _calls_per_turn(work: Work, seconds: float) -> int:
    calls = 1
    while (elapsed := _turn(work, calls)) < seconds / 4:
        calls *= 2
    return max(1, round(calls * seconds / elapsed))


def time_ratio(work: Work, reference: Work, *, turns: int = 31, seconds: float = 0.02) -> Ratio:
    """Measure ``work`` against ``reference``.

    Parameters
    ----------
    work, reference : callable
        Called without arguments, the same number of times each.
    turns : int
        How many pairs of turns.
    seconds : float
        How long one turn of the reference should take.
    """
    for function in (work, reference):
        _turn(function, 3)
    calls = _calls_per_turn(reference, seconds)
    ratios, times = [], []
    gc.collect()
    gc.disable()
    try:
        for index in range(turns):
            if index % 2:  # who comes first changes, so that neither gains by it
                mine, other = _turn(work, calls), _turn(reference, calls)
            else:
                other, mine = _turn(reference, calls), _turn(work, calls)
            ratios.append(mine / other)
            times.append(other / calls)
    finally:
        gc.enable()
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(median, low, high, statistics.median(times) * 1e9)


class Table:
    """Rows of ratios against their goals, printed as they come."""

    def __init__(self, title: str, first_column: str) -> None:
        print(f"\n{title}")
        print(f"{first_column:<34} {'ratio':>7} {'middle half':>15} {'goal':>9} {'reference':>12}")
        self.missed = 0

    def row(
        self,
        name: str,
        ratio: Ratio,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Print one row; ``at_least`` rows show the inverse, a rate."""
        median, low, high = ratio.median, ratio.low, ratio.high
        goal, met = "", True
        if at_least is not None:
            median, low, high = 1 / median, 1 / high, 1 / low
            goal, met = f">= {at_least:g}", median >= at_least
        elif at_most is not None:
            goal, met = f"<= {at_most:g}", median <= at_most
        self.missed += not met
        mark = "" if met else "  missed"
        print(
            f"{name:<34} {median:7.3f} {low:7.3f}-{high:7.3f} {goal:>9} "
            f"{ratio.reference_ns:9.0f} ns{mark}",
            flush=True,
        )


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean."""
    return statistics.geometric_mean(values)


def one_thread() -> None:
    """Compute with one thread, as the goals are stated."""
    torch.set_num_threads(1)
