"""What a launch costs in CUDA mode, of what it costs as openreg: each mode in a process of its own.

Both processes have the same work ready, and do so many calls of it when they are told to.
"""

import os
import subprocess
import sys
import time

import launch
from harness import Table, Work, one_thread, run, turn

BATCH_SECONDS = 0.02
SIZES = (1, 64, 4096, 1 << 20)
STEPS = (launch.mlp_step, launch.convolutional_step)


def make(name: str, device: str) -> Work:
    """Return the work of a name: an operator and a size, or a step of training."""
    for step in STEPS:
        if name == step.__name__:
            return step(device)
    operator, size = name.split()
    return launch.OPERATORS[operator](device, int(size))


def serve(device: str) -> None:
    """Do what each line asks for: the name of some work, or a number of calls of it."""
    one_thread()
    work: Work = make("add 1", device)
    for line in sys.stdin:
        words = line.strip()
        if words.isdigit():
            turn(work, int(words))
        else:
            work = make(words, device)
        print("done", flush=True)


class Process:
    """A Python in one of the modes."""

    def __init__(self, device: str) -> None:
        words = [sys.executable, __file__, device]
        environment = os.environ | ({"OPENREG_DEVICE_TYPE": "cuda"} if device == "cuda" else {})
        self._process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: str | int) -> None:
        """Have it do something, and wait until it is done."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"the process ended with {self._process.wait()}")


def calls_of(process: Process, name: str) -> int:
    """Return how many calls take about as long as a batch should."""
    process.tell(name)
    calls = 1
    while True:
        start = time.perf_counter()
        process.tell(calls)
        elapsed = time.perf_counter() - start
        if elapsed > BATCH_SECONDS / 4:
            return max(1, round(calls * BATCH_SECONDS / elapsed))
        calls *= 2


def main() -> None:
    """Print the table."""
    cuda, openreg = Process("cuda"), Process("openreg")
    table = Table("Modes: time in CUDA mode / time as openreg, one thread", "work", "ns a batch")
    names = [f"{operator} {size}" for operator in launch.OPERATORS for size in SIZES]
    for name in [*names, *(step.__name__ for step in STEPS)]:
        calls = calls_of(openreg, name)
        cuda.tell(name)
        table.measure(
            name.replace("_step", " step"),
            lambda: cuda.tell(calls),  # noqa: B023
            lambda: openreg.tell(calls),  # noqa: B023
            turns=41,
            seconds=BATCH_SECONDS,
            at_most=1.02,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        run(main)
