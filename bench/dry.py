"""The cost of launches in a dry run, whose signatures are known, and of empty launches.

A dry run lasts as long as its process. So it is a process of its own, which takes turns with this
one.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from harness import Table, one_thread, quartiles, run

CALLS, TURNS = 2000, 15
VARIABLES = {"OPENREG_DRY_RUN": "1", "OPENREG_MEMORY_PLANS": "builtin", "OPENREG_REPORT": ""}


def works(size: int) -> dict[str, Callable[[], object]]:
    """Return launches with tensors of size x size."""
    x = torch.zeros(size, size, device="openreg")
    return {
        "add": lambda: x + x,
        "add_": lambda: x.add_(x),
        "product": lambda: x @ x,
        "softmax": lambda: x.softmax(-1),
    }


def _turn(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - start) / CALLS * 1e9


def serve() -> None:
    """In the dry run: make a turn for each line, which names the work."""
    known = works(1024)
    for line in sys.stdin:
        print(_turn(known[line.strip()]), flush=True)


def main() -> None:
    """Print the table."""
    one_thread()
    table = Table("Dry launch / launch with one element", "launch")
    with subprocess.Popen(
        [sys.executable, __file__, "dry"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **VARIABLES},
    ) as dry:
        assert dry.stdin is not None and dry.stdout is not None
        for name, work in works(1).items():
            pairs = []
            for _ in range(TURNS):
                print(name, file=dry.stdin, flush=True)
                pairs.append((float(dry.stdout.readline()), _turn(work)))
            ratios = [one / other for one, other in pairs[1:]]
            table.row(name, quartiles(ratios, pairs[1:]), at_most=1.5)
        dry.stdin.close()


if __name__ == "__main__":
    serve() if sys.argv[1:] else run(main)
