"""The device below the allocator: its memory, the addresses that the driver chooses, held streams.

The driver, not the policy, decides where a segment lies, so a `Placement` decides it here. An event
recorded on a stream that is not held is done at once. One recorded on a held stream is done when
that hold ends.
"""

from __future__ import annotations

from bisect import insort
from random import Random
from typing import Protocol

from policy_config import MIB


class Placement(Protocol):
    """Chooses addresses; `reservation` distinguishes an address range from a segment."""

    def place(self, size: int, reservation: bool) -> int: ...

    def give_back(self, address: int, size: int) -> None: ...


class GapPlacement:
    """Places memory in the gaps between other memory, at multiples of 2 MiB.

    Parameters
    ----------
    order : {"lowest", "highest", "random"}
        Which of the gaps that are large enough is taken.
    """

    GRANULARITY = 2 * MIB
    FIRST = 1 << 33
    LAST = 1 << 46

    def __init__(self, order: str = "lowest", seed: int = 0) -> None:
        self.order = order
        self.random = Random(seed)
        self.gaps = [(self.FIRST, self.LAST)]

    def place(self, size: int, reservation: bool) -> int:
        size = self._rounded(size)
        fitting = [i for i, (start, end) in enumerate(self.gaps) if end - start >= size]
        if self.order == "lowest":
            index = fitting[0]
        elif self.order == "highest":
            index = fitting[-1]
        else:
            index = self.random.choice(fitting)
        start, end = self.gaps.pop(index)
        address = end - size if self.order == "highest" else start
        if address > start:
            insort(self.gaps, (start, address))
        if address + size < end:
            insort(self.gaps, (address + size, end))
        return address

    def give_back(self, address: int, size: int) -> None:
        start, end = address, address + self._rounded(size)
        kept = []
        for gap in self.gaps:
            if gap[1] == start:
                start = gap[0]
            elif gap[0] == end:
                end = gap[1]
            else:
                kept.append(gap)
        insort(kept, (start, end))
        self.gaps = kept

    def _rounded(self, size: int) -> int:
        return -(-size // self.GRANULARITY) * self.GRANULARITY


class Device:
    def __init__(self, capacity: int, placement: Placement) -> None:
        self.capacity = capacity
        self.placement = placement
        self.used = 0
        self.placed: list[str] = []  # what the driver returned since `take_placed`
        self.placed_count = 0  # segments and ranges that it ever returned
        self.holds: dict[int, int] = {}  # the number of each held stream's hold
        self.ended: dict[int, int] = {}  # the last hold of each stream that has ended
        self.hold_count = 0

    def free_bytes(self) -> int:
        return self.capacity - self.used

    def malloc(self, size: int) -> int | None:
        if size > self.capacity - self.used:
            return None
        address = self.placement.place(size, False)
        self.used += size
        self.placed.append(f"{address}:{size}")
        self.placed_count += 1
        return address

    def free(self, address: int, size: int) -> None:
        self.synchronize()
        self.used -= size
        self.placement.give_back(address, size)

    def reserve_range(self, size: int) -> int:
        address = self.placement.place(size, True)
        self.placed.append(f"r{address}:{size}")
        self.placed_count += 1
        return address

    def free_range(self, address: int, size: int) -> None:
        self.placement.give_back(address, size)

    def map(self, size: int) -> bool:
        if size > self.capacity - self.used:
            return False
        self.used += size
        return True

    def unmap(self, size: int) -> None:
        self.synchronize()
        self.used -= size

    def take_placed(self) -> str:
        text = ",".join(self.placed)
        self.placed.clear()
        return text

    def hold(self, stream: int) -> None:
        self.hold_count += 1
        self.holds[stream] = self.hold_count

    def go(self, stream: int) -> None:
        hold = self.holds.pop(stream, None)
        if hold is not None:
            self.ended[stream] = hold

    def synchronize(self) -> None:
        for stream in list(self.holds):
            self.go(stream)

    def record_event(self, stream: int) -> int:
        """Return the hold that the event waits for; 0 for none."""
        return self.holds.get(stream, 0)

    def event_is_done(self, stream: int, hold: int) -> bool:
        return hold <= self.ended.get(stream, 0)
