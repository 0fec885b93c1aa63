"""The cost and gain of streams: parallel devices, copies during computation, events, waits.

Every turn ends when all devices have finished their queued work, so running ahead gains nothing.
The CPU and each device use one thread.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable

import torch
from harness import Goal, Table, Work, absolute, built, one_thread, run, time_ratio
from programs import batch, mlp, training_step

MIB = 1 << 20


def training(table: Table) -> None:
    """Print the rows of training steps, compared with the CPU."""
    on_cpu, first, second = (
        training_step(mlp().to(device), *batch(device, 256, 256))
        for device in ("cpu", "openreg:0", "openreg:1")
    )
    # Before the second device is used; after that, each has half of the cores.
    table.measure("MLP step, one device", first, on_cpu, seconds=0.1, at_most=0.98)

    def both() -> None:
        first()
        second()

    ratio = time_ratio(both, on_cpu, seconds=0.1)
    table.row("MLP step, two devices, per replica", ratio.of_share(1 / 2), at_most=0.53)


def overlap(table: Table) -> None:
    """Print the row of a concurrent copy and matmul, compared with the longer of the two."""
    source = torch.ones(64 * MIB // 4).pin_memory()
    target = torch.empty_like(source, device="openreg")
    copies = torch.openreg.Stream()
    factor = torch.ones(64, 64, device="openreg")

    def seconds_of(work: Work) -> float:
        start = time.perf_counter()
        work()
        torch.accelerator.synchronize()
        return time.perf_counter() - start

    def copy() -> None:
        with copies:
            target.copy_(source, non_blocking=True)

    def matmul() -> None:
        factor @ factor

    # Grow the matmul until it takes about as long as the copy.
    while seconds_of(matmul) < min(seconds_of(copy) for _ in range(3)):
        factor = torch.ones(len(factor) + 64, len(factor) + 64, device="openreg")

    def both() -> None:
        copy()
        matmul()

    ratio = min(time_ratio(both, alone, seconds=0.1) for alone in (copy, matmul))
    table.row("copy and matmul / the longer of the two", ratio, at_most=1.15)


def small_operators(device: str) -> Work:
    """Return work that calls operators on 64 elements, one after the other."""
    tensor, other = torch.ones(64).to(device), torch.ones(64).to(device)

    def work() -> None:
        result = tensor
        for _ in range(8):
            result = (result + other).mul_(0.5)
            result = torch.relu(result)

    return work


def costs() -> None:
    """Print the rows of calls on an idle device: the best of many turns / allowed nanoseconds."""

    def best(work: Callable[[], object]) -> float:
        times = []
        for _ in range(50):
            start = time.perf_counter()
            for _ in range(500):
                work()
            times.append((time.perf_counter() - start) / 500)
        return min(times) * 1e9

    event = torch.openreg.Event()
    device = torch.device("openreg:0")

    def record_and_synchronize() -> None:
        event.record()
        event.synchronize()

    table = Table("Calls on an idle device: best time / allowed time", "call")
    for name, work, allowed_ns in (
        ("event record and synchronize", record_and_synchronize, 1500),
        ("torch.accelerator.synchronize()", torch.accelerator.synchronize, 500),
        ("torch.Stream(device=...)", lambda: torch.Stream(device=device), 500),
    ):
        table.row(name, absolute(best(work), allowed_ns), at_most=1)


def c_layer() -> None:
    """Run bench/streams_c.c, which measures without PyTorch, and check the goals in its lines."""
    said = subprocess.run([built("bench_streams")], check=True, stdout=subprocess.PIPE, text=True)
    print("\nWithout PyTorch")
    for line in said.stdout.splitlines():
        found = re.match(r"\s*(.*?)  +([\d.]+) .* goal: (?:under|at most) ([\d.]+)$", line)
        mark = Goal(at_most=float(found[3])).check(found[1], float(found[2])) if found else ""
        print(line + mark, flush=True)


def main() -> None:
    """Print the tables."""
    one_thread()
    c_layer()
    table = Table("Streams: time on openreg / reference, one thread each", "work")
    table.measure(
        "operators on 64 elements / CPU",
        small_operators("openreg"),
        small_operators("cpu"),
        at_most=1.10,
    )
    costs()
    if len(os.sched_getaffinity(0)) < 2:
        print("\nSkipping the rows about parallel work: this machine has one core.")
        return
    table = Table("Parallel work: time / time of a reference", "work")
    training(table)
    overlap(table)


if __name__ == "__main__":
    run(main)
