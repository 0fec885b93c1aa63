"""Runs programs of the corpus in the ranks of a job, one after the other; prints what was found.

``openreg run --ranks 2 run_ranks.py PROGRAM...`` prints a JSON list for each program and rank, on a
line behind the program's number and the rank's.
"""

import functools
import json
import os
import sys

import corpus
import torch.distributed as dist


def main():
    """Run the programs that are named on the command line."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    init_process_group, lines = dist.init_process_group, []
    for number, path in enumerate(sys.argv[1:]):
        # Each has a group of its own, which finds nothing in the store of the one before.
        own = dist.PrefixStore(str(number), store)
        dist.init_process_group = functools.partial(
            init_process_group, store=own, rank=rank, world_size=size
        )
        found = corpus.run(corpus.read(path))
        lines.append(f"{number} {rank} {json.dumps(found)}\n")
    os.write(1, "".join(lines).encode())


if __name__ == "__main__":
    main()
