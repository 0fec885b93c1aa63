"""What ``measured.txt`` says: the blocks that operators take beside the results that are kept."""

import collections
import pathlib
import re

from torch_openreg._releases import RELEASE

# Operator, arguments, the results that the caller keeps ("all" or a number), blocks.
LINES = [
    [part.strip() for part in line.split("|")]
    for line in pathlib.Path(__file__).with_name("measured.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
if RELEASE >= (2, 14):
    # The GPU had 2.13, which returns seed and offset of this operator on the host.
    for line in LINES:
        line[2] = "all" if line[0].endswith("efficient_attention") else line[2]
if RELEASE < (2, 13):  # which sorts in another way
    LINES = [line for line in LINES if not line[0].endswith("embedding_dense_backward")]
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
