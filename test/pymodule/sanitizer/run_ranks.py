"""Runs programs of the corpus one after the other in all ranks of a job, and prints the findings.

``openreg run --ranks 2 run_ranks.py PROGRAM...`` prints a line for each program and rank: the
program's number, the rank, and a JSON list of findings.
"""

import functools
import json
import os
import sys

import corpus
import torch.distributed as dist


def main():
    """Run the programs that the command line names."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    init_process_group, lines = dist.init_process_group, []
    for number, path in enumerate(sys.argv[1:]):
        # Each program has its own process group, whose part of the store is empty.
        own = dist.PrefixStore(str(number), store)
        dist.init_process_group = functools.partial(
            init_process_group, store=own, rank=rank, world_size=size
        )
        found = corpus.run(corpus.read(path))
        lines.append(f"{number} {rank} {json.dumps(found)}\n")
    os.write(1, "".join(lines).encode())


if __name__ == "__main__":
    main()
