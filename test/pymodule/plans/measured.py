"""What ``measured.txt`` says: the blocks that operators take beside the results that are kept."""

import collections
import pathlib
import re

# Operator, arguments, the results that the caller keeps ("all" or a number), blocks.
LINES = [
    [part.strip() for part in line.split("|")]
    for line in pathlib.Path(__file__).with_name("measured.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
IDS = [f"{line[0][6:]}-{line[1][:40]}" for line in LINES]


def expected_sizes(blocks):
    """Count the sizes in the last column, such as ``2x128 + 4``."""
    sizes = collections.Counter()
    for count, size in re.findall(r"(?:(\d+)x)?(\d+)", blocks):
        sizes[int(size)] += int(count or 1)
    return sizes


def sizes_beside(plan, owned):
    """Count the sizes of a plan's blocks except those with the numbers in ``owned``."""
    taken = [size for size in plan.events if size > 0]
    return collections.Counter(size for number, size in enumerate(taken, 1) if number not in owned)
