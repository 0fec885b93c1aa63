"""What it costs to start ranks, to the end of their first all_reduce, of `openreg run` / torchrun.

Both start the same program in turn. Rank 0 says when its all_reduce is done, and is there no
sooner than all others are; how long the processes take to end is a row of its own.
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
    """Seconds from the start of a job to what happens in it."""

    reduced: float
    ended: float


def started(command: list[str]) -> Start:
    """Start a job that says when it has reduced, and wait for its end."""
    start = time.perf_counter()
    # Ranks with a group of their own: whoever else uses the devices now does not count.
    environment = os.environ | {"OPENREG_GROUP": f"bench-{os.getpid()}"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        reduced = time.perf_counter() - start
    if line != b"reduced\n" or process.returncode != 0:
        sys.exit(f"{' '.join(command)}: printed {line!r}, ended with {process.returncode}")
    return Start(reduced, time.perf_counter() - start)


def launch_ratios(
    ranks: int, *, torchruns: int | None = None, backend: str = "gloo", turns: int = 5
) -> tuple[Ratio, Ratio]:
    """Measure `openreg run --ranks` against torchrun, in turn.

    Parameters
    ----------
    ranks : int
        How many `openreg run` starts.
    torchruns : int
        How many torchrun starts; as many if not given.
    backend : str
        What reduces, a CPU tensor in either.
    turns : int
        How many pairs of jobs.

    Returns
    -------
    tuple of Ratio
        To the end of the first all_reduce, and to the end of the job; in seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        words = [str(program), backend]
        mine = [str(SCRIPTS / "openreg"), "run", "--ranks", str(ranks), *words]
        options = ["--standalone", f"--nproc-per-node={torchruns or ranks}"]
        theirs = [str(SCRIPTS / "torchrun"), *options, *words]
        started(mine)  # what is read from a disk the first time
        pairs = []
        for index in range(turns):
            if index % 2:  # who comes first changes, so that neither gains by it
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
