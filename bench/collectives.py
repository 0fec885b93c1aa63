"""Collectives among devices, compared with Gloo on CPU tensors and with direct C code.

All sides run in the same processes and take turns. The device side calls a collective of
`torch.distributed` and synchronizes afterwards. Gloo's calls wait by themselves. The direct side is
bench/movement_c.c: two processes move the same data in shared memory, without PyTorch. The time of
a turn is that of its slowest rank.

The size of a row is that of one rank's input tensor, or of the output tensor for reduce_scatter.
bench/launching_ranks.py measures how long it takes to start ranks.
"""

import argparse
import contextlib
import ctypes
import gc
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from harness import Ratio, Table, Work, built, one_thread, quartiles, run
from programs import batch, mlp, training_step
from torch import nn

KIB, MIB = 1 << 10, 1 << 20
SIZES = {4 * KIB: "4 KiB", MIB: "1 MiB", 8 * MIB: "8 MiB", 64 * MIB: "64 MiB"}

# Minimum ratio of Gloo's time to the devices' time, by bytes.
GLOO_GOALS = {
    "all_reduce": {4 * KIB: 5, MIB: 4.5, 64 * MIB: 5},
    "all_gather_single": {4 * KIB: 4, MIB: 5, 64 * MIB: 5},
    "reduce_scatter_single": {4 * KIB: 6, MIB: 9, 64 * MIB: 8},
    "broadcast": {4 * KIB: 1.3, MIB: 2.5, 64 * MIB: 1.6},
    "all_to_all_single": {4 * KIB: 4, MIB: 3, 64 * MIB: 1.5},
    "barrier": {0: 6},
}
CROWDED_GOALS = {"all_reduce": {4 * KIB: 10, MIB: 10, 8 * MIB: 6}}
# Maximum ratio of the devices' time to the direct side's time, by bytes.
DIRECT_GOALS = {MIB: 1.5, 64 * MIB: 1.2}
DDP_GOAL = 1.10


# ---- one rank ------------------------------------------------------------------------------------


class Sides(NamedTuple):
    """One collective, as a callable for each side."""

    device: Work
    gloo: Work
    direct: Work | None


class Bench:
    """One rank of the measurements. All ranks call the same methods in the same order."""

    def __init__(self, rank: int, size: int, movement: "Movement | None") -> None:
        self.rank, self.size, self.movement = rank, size, movement
        self.device = torch.device("openreg", rank)
        self.devices, self.gloo = (dist.new_group(backend=name) for name in ("occl", "gloo"))

    def sides(self, name: str, size_bytes: int) -> Sides:
        """Make the tensors of a collective and return the call of each side."""
        count = size_bytes // 4

        def on(device: torch.device, group: dist.ProcessGroup) -> Work:
            call = self._call(name, count, device, group)
            if device.type == "cpu":
                return call

            def synchronized() -> None:
                call()
                torch.accelerator.synchronize()

            return synchronized

        direct = self.movement and self.movement.work(name, size_bytes)
        return Sides(on(self.device, self.devices), on(torch.device("cpu"), self.gloo), direct)

    def _call(self, name: str, count: int, device: torch.device, group: dist.ProcessGroup) -> Work:
        def zeros(factor: int) -> torch.Tensor:
            return torch.zeros(count * factor, device=device)

        if name == "barrier":
            device_ids = None if device.index is None else [device.index]
            return lambda: dist.barrier(group, device_ids=device_ids)
        if name == "all_reduce":
            mine = zeros(1)
            return lambda: dist.all_reduce(mine, group=group)
        if name == "broadcast":
            mine = zeros(1)
            return lambda: dist.broadcast(mine, 0, group=group)
        factors = {
            "all_gather_single": (self.size, 1),
            "reduce_scatter_single": (1, self.size),
            "all_to_all_single": (1, 1),
        }
        output, tensor = (zeros(factor) for factor in factors[name])
        function = getattr(dist, name)
        return lambda: function(output, tensor, group=group)

    def _seconds(self, work: Work, calls: int) -> float:
        dist.barrier(self.gloo)
        start = time.perf_counter()
        for _ in range(calls):
            work()
        torch.accelerator.synchronize()
        return time.perf_counter() - start

    def times(
        self, works: list[Work], *, turns: int = 21, seconds: float = 0.02
    ) -> list[list[float]]:
        """Return the nanoseconds of a call on the slowest rank, for each turn and work."""
        # All sides run for the same time. Ranks do not start at the same moment, which would
        # distort few calls of a fast side more than many calls of a slow side.
        for work in works:
            self._seconds(work, 3)
        once = torch.tensor([self._seconds(work, 10) / 10 for work in works])
        dist.all_reduce(once, dist.ReduceOp.MAX, group=self.gloo)
        calls = [min(4000, max(1, round(seconds / each))) for each in once.tolist()]
        times = torch.zeros(turns, len(works), dtype=torch.float64)
        gc.collect()
        gc.disable()
        for turn in range(turns):
            for index in range(len(works)):  # rotate the order, so that no side has an advantage
                which = (index + turn) % len(works)
                duration = self._seconds(works[which], calls[which])
                times[turn, which] = duration / calls[which] * 1e9
        gc.enable()
        dist.all_reduce(times, dist.ReduceOp.MAX, group=self.gloo)
        return times.tolist()

    def collective(self, name: str, size_bytes: int) -> list[list[float]]:
        """Measure a collective. The last column is Gloo's time."""
        device, gloo, direct = self.sides(name, size_bytes)
        works = [device, gloo] if direct is None else [device, direct, gloo]
        return self.times(works)

    def training(self) -> list[list[float]]:
        """Measure a training step with DDP and one without."""
        steps = []
        for is_parallel in (True, False):
            model = mlp().to(self.device)
            if is_parallel:
                model = nn.parallel.DistributedDataParallel(model, process_group=self.devices)
            steps.append(training_step(model, *batch(self.device, 256, 256)))
        return self.times(steps, seconds=0.2)


class Movement:
    """The direct side, with two ranks: bench/movement_c.c."""

    CAPACITY = 128 * MIB
    FILE_BYTES = 4096 + 4 * CAPACITY

    def __init__(self, library: Path, file: str, rank: int) -> None:
        self._library = ctypes.CDLL(str(library))
        opened = os.open(file, os.O_RDWR)
        if self._library.movement_join(opened, rank, ctypes.c_size_t(self.CAPACITY)) != 0:
            raise MemoryError("cannot map the shared memory of the direct side")
        os.close(opened)

    def work(self, name: str, size_bytes: int) -> Work:
        """Return a callable that runs a collective."""
        function = getattr(self._library, f"movement_{name.removesuffix('_single')}")
        size = ctypes.c_size_t(size_bytes)
        return lambda: function(size)


# ---- the processes -------------------------------------------------------------------------------


def run_rank(rank, size, store, library, file, requests) -> None:  # noqa: ANN001
    """Run one rank: answer requests until None arrives."""
    one_thread()
    dist.init_process_group(store=dist.FileStore(store, size), rank=rank, world_size=size)
    torch.accelerator.set_device_index(rank)
    movement = library and Movement(library, file, rank)
    bench = Bench(rank, size, movement)
    while request := requests.recv():
        method, *arguments = request
        requests.send(getattr(bench, method)(*arguments))
    dist.destroy_process_group()


Ask = Callable[..., list[list[float]]]


@contextlib.contextmanager
def ranks(size: int, *, with_direct: bool) -> Iterator[Ask]:
    """Start `size` ranks. Yield a function that asks all of them and returns rank 0's answer."""
    library = built("libbench_movement.so") if with_direct else None
    context = multiprocessing.get_context("spawn")
    memory = os.memfd_create("bench_movement")
    os.ftruncate(memory, Movement.FILE_BYTES)
    os.environ["OPENREG_GROUP"] = f"bench-{os.getpid()}"
    os.environ["OPENREG_DEVICE_COUNT"] = str(size)
    with tempfile.TemporaryDirectory() as folder:
        processes, pipes = [], []
        for rank in range(size):
            pipe, theirs = context.Pipe()
            arguments = (rank, size, f"{folder}/store", library, f"/proc/{os.getpid()}/fd/{memory}")
            process = context.Process(target=run_rank, args=(*arguments, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(pipe)

        def ask(*request: object) -> list[list[float]]:
            for pipe in pipes:
                pipe.send(request)
            return [pipe.recv() for pipe in pipes][0]

        try:
            yield ask
            for pipe in pipes:
                pipe.send(None)
            for process in processes:
                process.join()
        finally:
            for process in processes:
                process.kill()
            os.close(memory)


# ---- the tables ----------------------------------------------------------------------------------


def ratio_of(times: list[list[float]], mine: int, reference: int) -> Ratio:
    """Return the ratio of two columns."""
    pairs = [(turn[mine], turn[reference]) for turn in times]
    return quartiles([one / other for one, other in pairs], pairs)


def collective_rows(size: int, goals: dict[str, dict[int, float]], *, with_direct: bool) -> None:
    """Print the cost of collectives among `size` ranks."""
    measured = {}
    with ranks(size, with_direct=with_direct) as ask:
        table = Table(f"{size} ranks: rate on devices / rate of Gloo on the CPU", "collective")
        for name, by_bytes in goals.items():
            for size_bytes, goal in by_bytes.items():
                title = f"{name}, {SIZES[size_bytes]}" if size_bytes else name
                times = measured[title, size_bytes] = ask("collective", name, size_bytes)
                table.row(title, ratio_of(times, 0, -1).as_rate(), at_least=goal)
        if with_direct:
            table = Table(
                f"{size} ranks: time on devices / time of moving the data alone", "collective"
            )
            for (title, size_bytes), times in measured.items():
                table.row(title, ratio_of(times, 0, 1), at_most=DIRECT_GOALS.get(size_bytes))
            table = Table(f"{size} ranks: training with DDP / without", "step")
            table.row("MLP 256-1024-1024-10", ratio_of(ask("training"), 0, 1), at_most=DDP_GOAL)


def program_rows(program: str) -> dict[str, Ratio]:
    """Run a C benchmark and return its ratios by key."""
    environment = {**os.environ, "OPENREG_GROUP": f"bench-{os.getpid()}"}
    result = subprocess.run(
        [built(program)], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    lines = (line.split() for line in result.stdout.splitlines())
    return {key: Ratio(*map(float, numbers)) for key, *numbers in lines}


def arithmetic_rows() -> None:
    """Print the cost of reducing tiles."""
    table = Table(
        "Reducing two float32 sources into two destinations, time / reference, without PyTorch",
        "bytes",
    )
    for key, ratio in program_rows("bench_reduction").items():
        _, reference, size = key.split("-")
        goal = 1.1 if reference == "direct" else None
        what = "a specialized loop" if reference == "direct" else "copying as many bytes"
        table.row(f"{size}iB / {what}", ratio, at_most=goal)


def crowd_rows() -> None:
    """Print the cost of collectives among many ranks."""
    table = Table("Many ranks: time / time of 2 ranks, without PyTorch", "collective")
    for key, ratio in program_rows("bench_ranks").items():
        *name, size = key.split("-")
        table.row(f"{' of '.join(name)}{'iB' if len(name) > 1 else ''}, {size} ranks", ratio)


PARTS: dict[str, Callable[[], None]] = {
    "pairs": lambda: collective_rows(2, GLOO_GOALS, with_direct=True),
    "crowded": lambda: collective_rows(8, CROWDED_GOALS, with_direct=False),
    "arithmetic": arithmetic_rows,
    "many": crowd_rows,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure these rows only")
    options = parser.parse_args()
    for part in [options.only] if options.only else PARTS:
        PARTS[part]()


if __name__ == "__main__":
    run(main)
