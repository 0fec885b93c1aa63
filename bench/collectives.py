"""What collectives among devices cost: against Gloo on CPU tensors, and written directly in C.

All sides run in turn, in the same processes. A collective on devices is called through
`torch.distributed` and waited for by a synchronization; Gloo's calls wait by themselves. The direct
side is bench/movement_c.c: the same movement by two processes on shared memory, without PyTorch. A
turn takes as long as its slowest rank.

The bytes of a row are those of one rank's tensor: of what goes in, but of reduce_scatter what comes
out. What it costs to start ranks is in bench/launching_ranks.py.
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

# What Gloo's time is at least, over that of devices, by bytes.
GLOO_GOALS = {
    "all_reduce": {4 * KIB: 5, MIB: 4.5, 64 * MIB: 5},
    "all_gather_single": {4 * KIB: 4, MIB: 5, 64 * MIB: 5},
    "reduce_scatter_single": {4 * KIB: 6, MIB: 9, 64 * MIB: 8},
    "broadcast": {4 * KIB: 1.3, MIB: 2.5, 64 * MIB: 1.6},
    "all_to_all_single": {4 * KIB: 4, MIB: 3, 64 * MIB: 1.5},
    "barrier": {0: 6},
}
CROWDED_GOALS = {"all_reduce": {4 * KIB: 10, MIB: 10, 8 * MIB: 6}}
# What the devices' time is at most, over that of the movement alone.
DIRECT_GOALS = {MIB: 1.5, 64 * MIB: 1.2}
DDP_GOAL = 1.10


# ---- what each rank does ------------------------------------------------------------------------


class Sides(NamedTuple):
    """One collective, in each form that there is."""

    device: Work
    gloo: Work
    direct: Work | None


class Bench:
    """One rank's side of the measurements; all ranks call the same methods in the same order."""

    def __init__(self, rank: int, size: int, movement: "Movement | None") -> None:
        self.rank, self.size, self.movement = rank, size, movement
        self.device = torch.device("openreg", rank)
        self.devices, self.gloo = (dist.new_group(backend=name) for name in ("occl", "gloo"))

    def sides(self, name: str, size_bytes: int) -> Sides:
        """Make the tensors of a collective, and its forms."""
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
        """Return nanoseconds of a call, of each work in each turn: the slowest rank's."""
        # Each side as long as the others: ranks do not begin at the same time, which few calls of
        # the faster side would show more of than many calls of the slower one.
        for work in works:
            self._seconds(work, 3)
        once = torch.tensor([self._seconds(work, 10) / 10 for work in works])
        dist.all_reduce(once, dist.ReduceOp.MAX, group=self.gloo)
        calls = [min(4000, max(1, round(seconds / each))) for each in once.tolist()]
        times = torch.zeros(turns, len(works), dtype=torch.float64)
        gc.collect()
        gc.disable()
        for turn in range(turns):
            for index in range(len(works)):  # who comes first changes, so that none gains by it
                which = (index + turn) % len(works)
                duration = self._seconds(works[which], calls[which])
                times[turn, which] = duration / calls[which] * 1e9
        gc.enable()
        dist.all_reduce(times, dist.ReduceOp.MAX, group=self.gloo)
        return times.tolist()

    def collective(self, name: str, size_bytes: int) -> list[list[float]]:
        """Measure a collective; Gloo's time is the last column."""
        device, gloo, direct = self.sides(name, size_bytes)
        works = [device, gloo] if direct is None else [device, direct, gloo]
        return self.times(works)

    def training(self) -> list[list[float]]:
        """Measure a step of DDP, and one without."""
        steps = []
        for is_parallel in (True, False):
            model = mlp().to(self.device)
            if is_parallel:
                model = nn.parallel.DistributedDataParallel(model, process_group=self.devices)
            steps.append(training_step(model, *batch(self.device, 256, 256)))
        return self.times(steps, seconds=0.2)


class Movement:
    """The direct side, of two ranks: bench/movement_c.c."""

    CAPACITY = 128 * MIB
    FILE_BYTES = 4096 + 4 * CAPACITY

    def __init__(self, library: Path, file: str, rank: int) -> None:
        self._library = ctypes.CDLL(str(library))
        opened = os.open(file, os.O_RDWR)
        if self._library.movement_join(opened, rank, ctypes.c_size_t(self.CAPACITY)) != 0:
            raise MemoryError("the memory of the direct side cannot be mapped")
        os.close(opened)

    def work(self, name: str, size_bytes: int) -> Work:
        """Return a collective."""
        function = getattr(self._library, f"movement_{name.removesuffix('_single')}")
        size = ctypes.c_size_t(size_bytes)
        return lambda: function(size)


# ---- the processes -------------------------------------------------------------------------------


def be_a_rank(rank, size, store, library, file, requests) -> None:  # noqa: ANN001
    """Run in each process: answer what is asked until nothing is."""
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
    """Start so many ranks, and give what asks them all, and answers as one of them."""
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
            process = context.Process(target=be_a_rank, args=(*arguments, theirs), daemon=True)
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
    """Print what collectives cost among so many ranks."""
    measured = {}
    with ranks(size, with_direct=with_direct) as ask:
        table = Table(f"{size} ranks: rate on devices / rate of Gloo on the CPU", "collective")
        for name, by_bytes in goals.items():
            for size_bytes, goal in by_bytes.items():
                title = f"{name}, {SIZES[size_bytes]}" if size_bytes else name
                times = measured[title, size_bytes] = ask("collective", name, size_bytes)
                table.row(title, ratio_of(times, 0, -1).as_rate(), at_least=goal)
        if with_direct:
            table = Table(f"{size} ranks: time on devices / of the movement alone", "collective")
            for (title, size_bytes), times in measured.items():
                table.row(title, ratio_of(times, 0, 1), at_most=DIRECT_GOALS.get(size_bytes))
            table = Table(f"{size} ranks: training with DDP / without", "step")
            table.row("MLP 256-1024-1024-10", ratio_of(ask("training"), 0, 1), at_most=DDP_GOAL)


def program_rows(program: str) -> dict[str, Ratio]:
    """Return what a benchmark in C has measured, by its keys."""
    environment = {**os.environ, "OPENREG_GROUP": f"bench-{os.getpid()}"}
    said = subprocess.run(
        [built(program)], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    lines = (line.split() for line in said.stdout.splitlines())
    return {key: Ratio(*map(float, numbers)) for key, *numbers in lines}


def arithmetic_rows() -> None:
    """Print what the reduction of tiles costs."""
    table = Table("Reducing two float32 sources into two destinations, without PyTorch", "bytes")
    for key, ratio in program_rows("bench_reduction").items():
        _, reference, size = key.split("-")
        goal = 1.1 if reference == "direct" else None
        what = "a loop for just that" if reference == "direct" else "copies of as much"
        table.row(f"{size}iB / {what}", ratio, at_most=goal)


def crowd_rows() -> None:
    """Print what many ranks cost."""
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
    parser.add_argument("--only", choices=PARTS, help="these rows only")
    options = parser.parse_args()
    for part in [options.only] if options.only else PARTS:
        PARTS[part]()


if __name__ == "__main__":
    run(main)
