"""The allocator's statistics, in the order in which a player prints them.

`values` is one flat list of 122 numbers: nine statistics for each of all, small and large, with
current, peak, allocated and freed; the two oversize ones; five counters and max_split_size. A
change below affects the `all` entry and that of one pool kind.
"""

from __future__ import annotations

STATISTICS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
KINDS = ("all", "small", "large")
FIGURES = ("current", "peak", "allocated", "freed")
OVERSIZE = ("oversize_allocations", "oversize_segments")
COUNTERS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
)
NAMES = (
    *(f"{s}.{kind}.{figure}" for s in STATISTICS for kind in KINDS for figure in FIGURES),
    *(f"{s}.{figure}" for s in OVERSIZE for figure in FIGURES),
    *COUNTERS,
    "max_split_size",
)

SMALL, LARGE = 1, 2

_WIDTH = len(KINDS) * len(FIGURES)
(
    ALLOCATION,
    SEGMENT,
    ACTIVE,
    INACTIVE_SPLIT,
    ALLOCATED_BYTES,
    RESERVED_BYTES,
    ACTIVE_BYTES,
    INACTIVE_SPLIT_BYTES,
    REQUESTED_BYTES,
) = range(0, _WIDTH * len(STATISTICS), _WIDTH)
OVERSIZE_ALLOCATIONS = _WIDTH * len(STATISTICS)
OVERSIZE_SEGMENTS = OVERSIZE_ALLOCATIONS + len(FIGURES)
NUM_ALLOC_RETRIES = OVERSIZE_SEGMENTS + len(FIGURES)
NUM_OOMS = NUM_ALLOC_RETRIES + 1
NUM_SYNC_ALL_STREAMS = NUM_ALLOC_RETRIES + 2
NUM_DEVICE_ALLOC = NUM_ALLOC_RETRIES + 3
NUM_DEVICE_FREE = NUM_ALLOC_RETRIES + 4
MAX_SPLIT_SIZE = NUM_ALLOC_RETRIES + 5


class Statistics:
    def __init__(self, max_split_size: int) -> None:
        self.values = [0] * len(NAMES)
        self.values[MAX_SPLIT_SIZE] = max_split_size

    def line(self) -> str:
        return " ".join(map(str, self.values))

    def count(self, counter: int) -> None:
        self.values[counter] += 1

    def increase_one(self, place: int, amount: int) -> None:
        values = self.values
        current = values[place] + amount
        values[place] = current
        values[place + 1] = max(values[place + 1], current)
        values[place + 2] += amount

    def decrease_one(self, place: int, amount: int) -> None:
        self.values[place] -= amount
        self.values[place + 3] += amount

    def increase(self, statistic: int, kind: int, amount: int) -> None:
        values = self.values
        for place in (statistic, statistic + 4 * kind):
            current = values[place] + amount
            values[place] = current
            values[place + 1] = max(values[place + 1], current)
            values[place + 2] += amount

    def decrease(self, statistic: int, kind: int, amount: int) -> None:
        values = self.values
        values[statistic] -= amount
        values[statistic + 3] += amount
        place = statistic + 4 * kind
        values[place] -= amount
        values[place + 3] += amount

    def change(self, statistic: int, kind: int, amount: int) -> None:
        """Count a net change: once, as an increase or a decrease, or not at all."""
        if amount > 0:
            self.increase(statistic, kind, amount)
        elif amount < 0:
            self.decrease(statistic, kind, -amount)

    def reset_peak(self) -> None:
        for place in range(0, NUM_ALLOC_RETRIES, len(FIGURES)):
            self.values[place + 1] = self.values[place]

    def reset_accumulated(self) -> None:
        for place in range(0, NUM_ALLOC_RETRIES, len(FIGURES)):
            self.values[place + 2] = self.values[place + 3] = 0
        for counter in range(NUM_ALLOC_RETRIES, MAX_SPLIT_SIZE):
            self.values[counter] = 0
