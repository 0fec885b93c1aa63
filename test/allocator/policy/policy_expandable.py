"""Expandable segments: ranges of addresses in which pages are mapped as needed.

The blocks of a range are one chain of mapped and unmapped blocks. Unmapped blocks begin and end at
page boundaries, and no two of them are neighbours.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from policy_blocks import Block, BlockPool, try_merge
from policy_config import MIB, Config
from policy_device import Device
from policy_stats import (
    NUM_DEVICE_ALLOC,
    NUM_DEVICE_FREE,
    RESERVED_BYTES,
    Statistics,
)

SMALL_PAGE = 2 * MIB


@dataclass(eq=False)
class ExpandableSegment:
    address: int
    size: int
    page: int
    mapped: int = 0  # bytes


class ExpandableMemory:
    def __init__(self, device: Device, stats: Statistics, config: Config) -> None:
        self.device = device
        self.stats = stats
        self.config = config
        self.segments: list[ExpandableSegment] = []

    def allocate(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Return a mapped block of at least `size` bytes that is in no pool, or None."""
        candidate = self._find(pool, stream, size)
        if not candidate.mapped and not self._map(candidate, min(candidate.size, size)):
            return None
        while candidate.size < size:
            following = candidate.next
            assert following is not None and not following.mapped
            missing = size - candidate.size
            if not self._map(following, min(missing, following.size)):
                return None
            candidate = following
        pool.remove(candidate)
        return candidate

    def give_back(self, block: Block) -> None:
        """Unmap the whole pages inside a free block, and release a range that has no pages left."""
        self._unmap(block)
        if not block.is_split() and not block.mapped:
            self._release_range(block)

    def _find(self, pool: BlockPool, stream: int, size: int) -> Block:
        """Return the lowest place where free and unmapped neighbours suffice, or a new range."""
        for address in pool.unmapped.get(stream, ()):
            block = pool.unmapped_blocks[address]
            if block.prev is not None and block.prev.is_available():
                block = block.prev
            if _has_room(block, size):
                return block
        page = SMALL_PAGE if pool.is_small else self.config.large_segment_size
        capacity = self.device.capacity
        range_size = -(-(capacity + capacity // 8) // page) * page
        address = self.device.reserve_range(range_size)
        segment = ExpandableSegment(address, range_size, page)
        self.segments.append(segment)
        block = Block(address, range_size, stream, pool, self.device.placed_count, segment)
        block.mapped = False
        pool.insert_unmapped(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Map the first `size` bytes of an unmapped block, in whole pages or not at all."""
        segment = block.segment
        assert segment is not None and (block.address - segment.address) % segment.page == 0
        size = -(-size // segment.page) * segment.page
        if not self.device.map(size):
            return False
        segment.mapped += size
        pool = block.pool
        pool.remove_unmapped(block)
        block.mapped = True
        if size < block.size:
            rest = block.part(block.address + size, block.size - size)
            rest.mapped = False
            rest.insert_after(block)
            pool.insert_unmapped(rest)
            block.size = size
        try_merge(block, block.prev)
        try_merge(block, block.next)
        pool.insert(block)
        pool.owner.reserved += size
        self.stats.increase(RESERVED_BYTES, pool.kind, size)
        self.stats.count(NUM_DEVICE_ALLOC)
        return True

    def _unmap(self, block: Block) -> None:
        segment, pool = block.segment, block.pool
        assert segment is not None
        start = -(-(block.address - segment.address) // segment.page) * segment.page
        end = (block.address + block.size - segment.address) // segment.page * segment.page
        if start >= end:
            return
        size = end - start
        self.device.unmap(size)
        segment.mapped -= size
        pool.remove(block)
        self._keep_edges(block, segment.address + start, segment.address + end)
        block.address = segment.address + start
        block.size = size
        block.mapped = False
        try_merge(block, block.prev)
        try_merge(block, block.next)
        pool.insert_unmapped(block)
        pool.owner.reserved -= size
        self.stats.decrease(RESERVED_BYTES, pool.kind, size)
        self.stats.count(NUM_DEVICE_FREE)

    def _keep_edges(self, block: Block, start: int, end: int) -> None:
        """Turn what lies outside the pages from `start` to `end` into free blocks."""
        before = start - block.address
        if before > 0:
            edge = block.part(block.address, before)
            edge.insert_before(block)
            block.pool.insert(edge)
        after = block.address + block.size - end
        if after > 0:
            edge = block.part(end, after)
            edge.insert_after(block)
            block.pool.insert(edge)

    def _release_range(self, block: Block) -> None:
        segment = block.segment
        assert segment is not None and block.size == segment.size
        self.segments.remove(segment)
        block.pool.remove_unmapped(block)
        self.device.free_range(segment.address, segment.size)


def expandable_size(block: Block) -> int:
    """Return the bytes of a free block and of the unmapped space behind it."""
    following = block.next
    if following is not None and not following.mapped:
        return block.size + following.size
    return block.size


def find_expandable(pool: BlockPool, stream: int, place: int) -> int:
    """Return the block to take from `place` on: while the next can grow to less, the next."""
    entries = pool.free[stream]
    block = pool.block_of(entries[place])
    while block.segment is not None and place + 1 < len(entries):
        following = pool.block_of(entries[place + 1])
        if expandable_size(following) >= expandable_size(block):
            break
        block = following
        place += 1
    return place


def skip_expandable(pool: BlockPool, stream: int, place: int) -> int:
    """Return the first block of an ordinary segment from `place` on; past the end if none."""
    entries = pool.free[stream]
    while place < len(entries) and pool.block_of(entries[place]).segment is not None:
        place += 1
    return place


def first_fit(pool: BlockPool, stream: int, size: int) -> int:
    return bisect_left(pool.free.get(stream, ()), (size,))


def _has_room(block: Block | None, size: int) -> bool:
    room = 0
    while room < size and block is not None and block.is_available():
        room += block.size
        block = block.next
    return room >= size
