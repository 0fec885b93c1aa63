"""The model's invariants between two commands, checked by a walk over all its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from policy import SMALL_SIZE, Allocator
from policy_blocks import Block, BlockPool
from policy_config import UNLIMITED
from policy_session import all_blocks
from policy_stats import (
    ACTIVE,
    ACTIVE_BYTES,
    ALLOCATED_BYTES,
    ALLOCATION,
    INACTIVE_SPLIT,
    INACTIVE_SPLIT_BYTES,
    KINDS,
    LARGE,
    NAMES,
    NUM_ALLOC_RETRIES,
    OVERSIZE_ALLOCATIONS,
    OVERSIZE_SEGMENTS,
    REQUESTED_BYTES,
    RESERVED_BYTES,
    SEGMENT,
    SMALL,
)


def invariants(allocator: Allocator) -> None:
    """Raise AssertionError for the first broken invariant."""
    for pool in _pools(allocator):
        _check_pool(pool)
    blocks = list(all_blocks(allocator))
    for block in blocks:
        _check_block(block)
    _check_coverage(allocator, blocks)
    _check_events(allocator)
    _check_statistics(allocator, blocks)
    for owner in (allocator.default_pool, *allocator.private_pools):
        held = sum(b.size for b in blocks if b.pool.owner is owner)
        assert owner.reserved == held, f"pool {owner.number}: {owner.reserved} != {held}"
        assert owner.use_count >= (owner in allocator.private_pools.begun)


def _pools(allocator: Allocator) -> Iterator[BlockPool]:
    for owner in (allocator.default_pool, *allocator.private_pools):
        yield owner.small
        yield owner.large


def _check_pool(pool: BlockPool) -> None:
    entries = [(stream, e) for stream, found in pool.free.items() for e in found]
    assert len(entries) == len(pool.blocks)
    for stream, entry in entries:
        block = pool.block_of(entry)
        assert block.stream == stream and block.order() == entry
        assert block.pool is pool and block.mapped and block.is_available()
        assert block.requested == 0 and 0 <= block.age_base <= pool.searches
    for found in pool.free.values():
        assert found == sorted(found)
    for stream, addresses in pool.unmapped.items():
        assert addresses == sorted(addresses)
        for address in addresses:
            block = pool.unmapped_blocks[address]
            assert block.stream == stream and block.pool is pool and not block.mapped
            assert block.segment is not None
            assert (block.address - block.segment.address) % block.segment.page == 0
            assert block.size % block.segment.page == 0
    assert sum(map(len, pool.unmapped.values())) == len(pool.unmapped_blocks)


def _check_block(block: Block) -> None:
    assert block.size > 0 and block.size % 512 == 0 and block.address % 512 == 0
    for neighbour in (block.prev, block.next):
        if neighbour is None:
            continue
        assert neighbour.stream == block.stream and neighbour.pool is block.pool
        assert neighbour.segment is block.segment and neighbour.registration == block.registration
        both_free = block.is_available() and neighbour.is_available()
        assert not (both_free and neighbour.mapped), "free neighbours that were not merged"
    if block.next is not None:
        assert block.next.prev is block and block.next.address == block.address + block.size
    if block.prev is not None:
        assert block.prev.next is block
    if block.segment is None:
        assert block.mapped
    if block.pool.is_small and block.allocated:
        assert block.requested <= SMALL_SIZE
    if block.allocated:
        assert 0 < block.requested <= block.size and block.event_count == 0


def _check_coverage(allocator: Allocator, blocks: list[Block]) -> None:
    """Check that blocks do not overlap, and cover exactly what the driver returned."""
    end = 0
    for block in sorted(blocks, key=lambda b: b.address):
        assert block.address >= end, "blocks overlap"
        end = block.address + block.size
    total = sum(block.size for block in blocks)
    assert allocator.device.used == total == allocator.reserved()
    assert total <= allocator.device.capacity
    for segment in allocator.expandable.segments:
        mapped = sum(b.size for b in blocks if b.segment is segment)
        assert segment.mapped == mapped and mapped % segment.page == 0


def _check_events(allocator: Allocator) -> None:
    counts: dict[int, int] = {}
    for queue in allocator.events.queues.values():
        assert queue, "an empty queue was kept"
        for _, block in queue:
            counts[block.address] = counts.get(block.address, 0) + 1
    for address, block in allocator.active.items():
        assert block.address == address and block.mapped
        assert block.event_count == counts.pop(address, 0)
        assert block.allocated != (block.event_count > 0)
    assert not counts, "events of blocks that are not active"


def _expected(allocator: Allocator, blocks: list[Block]) -> dict[int, int]:
    held = [b for b in blocks if b.allocated]
    active = [b for b in blocks if not b.is_available()]
    heads = [b for b in blocks if b.prev is None and b.segment is None]
    inactive = [b for b in blocks if b.is_available() and b.is_split() and b.segment is None]
    return {
        ALLOCATION: len(held),
        ALLOCATED_BYTES: sum(b.size for b in held),
        ACTIVE: len(active),
        ACTIVE_BYTES: sum(b.size for b in active),
        REQUESTED_BYTES: sum(b.requested for b in active),
        SEGMENT: len(heads),
        RESERVED_BYTES: sum(b.size for b in blocks),
        INACTIVE_SPLIT: len(inactive),
        INACTIVE_SPLIT_BYTES: sum(b.size for b in inactive),
    }


def _check_statistics(allocator: Allocator, blocks: list[Block]) -> None:
    values = allocator.stats.values
    for index in range(len(KINDS)):
        chosen = blocks
        if index in (SMALL, LARGE):
            chosen = [b for b in blocks if b.pool.kind == index]
        for statistic, expected in _expected(allocator, chosen).items():
            place = statistic + 4 * index
            assert values[place] == expected, f"{NAMES[place]}: {values[place]} != {expected}"
    for place in range(0, NUM_ALLOC_RETRIES, 4):
        current, peak = values[place], values[place + 1]
        assert 0 <= current <= peak, f"{NAMES[place]}: {current}, peak {peak}"
    limit = allocator.config.max_split_size
    if limit == UNLIMITED:
        return
    oversize = sum(b.allocated and b.size >= limit for b in blocks)
    assert values[OVERSIZE_ALLOCATIONS] == oversize
    oversize = sum(_segment_size(b) >= limit for b in blocks if b.prev is None and not b.segment)
    assert values[OVERSIZE_SEGMENTS] == oversize


def _segment_size(head: Block) -> int:
    size = 0
    block: Block | None = head
    while block is not None:
        size += block.size
        block = block.next
    return size
