"""Processes that run the work of `launch` on request, each with its own environment variables."""

import os
import subprocess
import sys
import time

import launch
from harness import Work, one_thread, turn
from torch_openreg import sanitizer

BATCH_SECONDS = 0.02
DISABLED = "disabled"  # the request to disable the sanitizer
STEPS = (
    launch.mlp_step,
    launch.large_mlp_step,
    launch.tiny_mlp_step,
    launch.small_transformer_step,
    launch.convolutional_step,
)


def make(name: str, device: str) -> Work:
    """Return the named work: an operator and a size, or a training step."""
    for step in STEPS:
        if name == step.__name__:
            return step(device)
    operator, size = name.split()
    return launch.OPERATORS[operator](device, int(size))


def serve(device: str) -> None:
    """Serve one request per line: the name of work to prepare, a number of calls, or `DISABLED`."""
    one_thread()
    work: Work = make("add 1", device)
    for line in sys.stdin:
        words = line.strip()
        if words.isdigit():
            turn(work, int(words))
        elif words == DISABLED:
            sanitizer.disable()
        else:
            work = make(words, device)
        print("done", flush=True)


class Process:
    """A Python process with its own environment variables. `device` is where it makes tensors."""

    def __init__(self, device: str, **variables: str) -> None:
        words = [sys.executable, __file__, device]
        environment = os.environ | variables
        self._process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: str | int) -> None:
        """Send a request and wait until the process has completed it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"the process exited with status {self._process.wait()}")


def calls_of(process: Process, name: str) -> int:
    """Return how many calls take about `BATCH_SECONDS`."""
    process.tell(name)
    process.tell(3)  # the first call is slower
    calls = 1
    while True:
        start = time.perf_counter()
        process.tell(calls)
        elapsed = time.perf_counter() - start
        if elapsed > BATCH_SECONDS / 4:
            return max(1, round(calls * BATCH_SECONDS / elapsed))
        calls *= 2


if __name__ == "__main__":
    serve(sys.argv[1])
