"""Blocks, and the pools that hold the free ones.

A block is a run of bytes of one segment, or of one address range when segments are expandable.
Neighbours in a segment are linked. A free block lies in its pool's `free` lists: for each stream
one sorted list of (size, registration, address). An unmapped block lies in `unmapped`, sorted by
address.

Remove a block from its pool before its size or address changes, and insert it again afterwards.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from policy_stats import SMALL

if TYPE_CHECKING:
    from policy_expandable import ExpandableSegment
    from policy_pools import PoolPair


class Block:
    """One run of bytes.

    `registration` numbers its segment or range, in the order in which the driver returned them.
    """

    __slots__ = (
        "address",
        "age_base",
        "allocated",
        "event_count",
        "mapped",
        "next",
        "pool",
        "prev",
        "registration",
        "requested",
        "segment",
        "size",
        "stream",
        "stream_uses",
    )

    def __init__(
        self,
        address: int,
        size: int,
        stream: int,
        pool: BlockPool,
        registration: int,
        segment: ExpandableSegment | None = None,
    ) -> None:
        self.address = address
        self.size = size
        self.stream = stream
        self.pool = pool
        self.registration = registration
        self.segment = segment
        self.mapped = True
        self.allocated = False
        self.requested = 0
        self.event_count = 0
        self.stream_uses: set[int] | None = None  # recorded, without an event yet
        self.age_base = 0
        self.prev: Block | None = None
        self.next: Block | None = None

    def part(self, address: int, size: int) -> Block:
        """Return a new block of the same segment, not yet linked."""
        return Block(address, size, self.stream, self.pool, self.registration, self.segment)

    def order(self) -> tuple[int, int, int]:
        """Return the sort key within a stream: size, then the age of the segment."""
        return self.size, self.registration, self.address

    def is_split(self) -> bool:
        return self.prev is not None or self.next is not None

    def is_available(self) -> bool:
        """Return whether it is neither held nor waiting; also true of unmapped blocks."""
        return not self.allocated and self.event_count == 0 and not self.stream_uses

    def insert_before(self, following: Block) -> None:
        """Link this block into the chain of `following`, directly in front of it."""
        self.prev = following.prev
        self.next = following
        if self.prev is not None:
            self.prev.next = self
        following.prev = self

    def insert_after(self, preceding: Block) -> None:
        self.prev = preceding
        self.next = preceding.next
        if self.next is not None:
            self.next.prev = self
        preceding.next = self


class BlockPool:
    def __init__(self, kind: int, owner: PoolPair) -> None:
        self.kind = kind
        self.is_small = kind == SMALL
        self.owner = owner
        self.searches = 0  # counted only while garbage collection is on
        self.free: dict[int, list[tuple[int, int, int]]] = {}
        self.blocks: dict[int, Block] = {}  # the free ones by address
        self.unmapped: dict[int, list[int]] = {}
        self.unmapped_blocks: dict[int, Block] = {}

    def insert(self, block: Block) -> None:
        block.age_base = self.searches
        insort(self.free.setdefault(block.stream, []), block.order())
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        entries = self.free[block.stream]
        place = bisect_left(entries, block.order())
        assert entries[place] == block.order()
        del entries[place]
        del self.blocks[block.address]

    def insert_unmapped(self, block: Block) -> None:
        insort(self.unmapped.setdefault(block.stream, []), block.address)
        self.unmapped_blocks[block.address] = block

    def remove_unmapped(self, block: Block) -> None:
        addresses = self.unmapped[block.stream]
        del addresses[bisect_left(addresses, block.address)]
        del self.unmapped_blocks[block.address]

    def in_order(self) -> Iterator[Block]:
        """Return the current free blocks, by stream, then in `order`."""
        for stream in sorted(self.free):
            for entry in list(self.free[stream]):
                yield self.block_of(entry)

    def block_of(self, entry: tuple[int, int, int]) -> Block:
        """Return the block of an entry of `free`."""
        return self.blocks[entry[2]]

    def age(self, block: Block) -> int:
        return self.searches - block.age_base


def try_merge(into: Block, neighbour: Block | None) -> int:
    """Merge a neighbour into `into`, which is in no pool; return the added bytes."""
    if neighbour is None or neighbour.mapped != into.mapped or not neighbour.is_available():
        return 0
    if neighbour.mapped:
        neighbour.pool.remove(neighbour)
    else:
        neighbour.pool.remove_unmapped(neighbour)
    if into.prev is neighbour:
        into.address = neighbour.address
        into.prev = neighbour.prev
        if into.prev is not None:
            into.prev.next = into
    else:
        into.next = neighbour.next
        if into.next is not None:
            into.next.prev = into
    into.size += neighbour.size
    return neighbour.size
