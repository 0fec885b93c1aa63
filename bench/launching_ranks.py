"""The time to start ranks until the end of their first all_reduce: `openreg run` / torchrun.

Both start the same program and take turns. Rank 0 reports the end of its all_reduce, which is not
before all other ranks have joined it. Another row measures the time until all processes have ended.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import Ratio, Table, quartiles, run

PROGRAM = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else None)
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == dist.get_world_size()
if dist.get_rank() == 0:
    print("reduced", flush=True)
dist.destroy_process_group()
"""
SCRIPTS = Path(sysconfig.get_path("scripts"))


class Start(NamedTuple):
    """Seconds from the start of a job to the end of its all_reduce and to its own end."""

    reduced: float
    ended: float


def started(command: list[str]) -> Start:
    """Start a job that reports its all_reduce, and wait for its end."""
    start = time.perf_counter()
    # A device group of its own, so that other processes do not count.
    environment = os.environ | {"OPENREG_GROUP": f"bench-{os.getpid()}"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        reduced = time.perf_counter() - start
    if line != b"reduced\n" or process.returncode != 0:
        sys.exit(
            f"{' '.join(command)}: printed {line!r} and exited with status {process.returncode}"
        )
    return Start(reduced, time.perf_counter() - start)


def launch_ratios(
    ranks: int, *, torchruns: int | None = None, backend: str = "gloo", turns: int = 5
) -> tuple[Ratio, Ratio]:
    """Measure `openreg run --ranks` against torchrun, in turn.

    Parameters
    ----------
    ranks : int
        The number of ranks that `openreg run` starts.
    torchruns : int
        The number of ranks that torchrun starts; the same if not given.
    backend : str
        The process group's backend. It reduces a CPU tensor.
    turns : int
        The number of pairs of jobs.

    Returns
    -------
    tuple of Ratio
        Seconds to the end of the first all_reduce, and to the end of the job.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        words = [str(program), backend]
        mine = [str(SCRIPTS / "openreg"), "run", "--ranks", str(ranks), *words]
        options = ["--standalone", f"--nproc-per-node={torchruns or ranks}"]
        theirs = [str(SCRIPTS / "torchrun"), *options, *words]
        started(mine)  # warm the file cache
        pairs = []
        for index in range(turns):
            if index % 2:  # alternate the order, so that neither side has an advantage
                first, second = started(mine), started(theirs)
            else:
                second, first = started(theirs), started(mine)
            pairs.append((first, second))
    to_end = [(one.ended, other.ended) for one, other in pairs]
    to_reduced = [(one.reduced, other.reduced) for one, other in pairs]
    return (
        quartiles([one / other for one, other in to_reduced], to_reduced),
        quartiles([one / other for one, other in to_end], to_end),
    )


def main() -> None:
    """Print the table."""
    table = Table("Starting ranks: openreg run / torchrun", "ranks of each", "s")
    for title, ranks, torchruns, at_most in (
        ("8 / 8", 8, 8, 1 / 4),
        ("64 / 12", 64, 12, 1.0),
    ):
        reduced, ended = launch_ratios(ranks, torchruns=torchruns, turns=5 if ranks == 8 else 3)
        table.row(f"{title}, to the end of an all_reduce", reduced, at_most=at_most)
        table.row(f"{title}, to the end of the job", ended)


if __name__ == "__main__":
    run(main)
