"""A second implementation of the policy of PyTorch's CUDA caching allocator, for one device.

It decides which block a request gets, and what the allocator takes from and returns to the driver.
It counts as CUDA does, including the order of increases and decreases on which peaks and sums
depend. A `Placement` decides where segments lie. The code is made for comparison, not for speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from policy_blocks import Block, BlockPool, try_merge
from policy_config import MIB, MIN_BLOCK_SIZE, UNLIMITED, Config
from policy_device import Device, GapPlacement, Placement
from policy_events import EventQueues
from policy_expandable import ExpandableMemory, find_expandable, first_fit, skip_expandable
from policy_pools import AllocatorError, PoolPair, PrivatePools
from policy_stats import (
    ACTIVE,
    ACTIVE_BYTES,
    ALLOCATED_BYTES,
    ALLOCATION,
    INACTIVE_SPLIT,
    INACTIVE_SPLIT_BYTES,
    NUM_ALLOC_RETRIES,
    NUM_DEVICE_ALLOC,
    NUM_DEVICE_FREE,
    NUM_OOMS,
    NUM_SYNC_ALL_STREAMS,
    OVERSIZE_ALLOCATIONS,
    OVERSIZE_SEGMENTS,
    REQUESTED_BYTES,
    RESERVED_BYTES,
    SEGMENT,
    Statistics,
)

SMALL_SIZE = 1 * MIB  # the largest request of the small pool
SMALL_SEGMENT = 2 * MIB
MIN_LARGE_SEGMENT_REQUEST = 10 * MIB  # larger requests get segments of their size
ROUND_LARGE = 2 * MIB


@dataclass
class OutOfMemoryError(Exception):
    """The numbers of the message, in bytes; `allowed` is -1 without a limit."""

    tried: int
    free: int
    allowed: int
    allocated: int
    private: int
    unallocated: int


class OutOfMemoryRejected(Exception):
    """A new segment that throw_on_cudamalloc_oom rejects without trying."""


@dataclass
class Request:
    size: int
    stream: int
    pool: BlockPool
    segment_size: int
    expandable: bool
    block: Block | None = None


class Allocator:
    """One device's caching allocator.

    Parameters
    ----------
    capacity : int
        Bytes of the device.
    settings : str
        As in PYTORCH_ALLOC_CONF.
    placement : Placement, optional
        Chooses addresses; by default the lowest gap that is large enough.

    Raises
    ------
    ConfigError
        For settings that are refused.
    """

    def __init__(
        self, capacity: int, settings: str = "", placement: Placement | None = None
    ) -> None:
        self.config = Config(settings)
        self.device = Device(capacity, placement or GapPlacement())
        limit = self.config.max_split_size
        self.stats = Statistics(-1 if limit == UNLIMITED else limit)
        self.default_pool = PoolPair()
        self.private_pools = PrivatePools()
        self.active: dict[int, Block] = {}  # held or waiting for events, by address
        self.expandable = ExpandableMemory(self.device, self.stats, self.config)
        self.events = EventQueues(self.device, self._free_block)
        self.allowed_maximum: int | None = None
        self.set_memory_fraction(self.config.per_process_memory_fraction)

    # The program's calls

    def malloc(self, requested: int, stream: int) -> Block | None:
        """Return the block for `requested` bytes, None for 0.

        Raises
        ------
        OutOfMemoryError
            When everything was tried.
        OutOfMemoryRejected
            At the first new segment that throw_on_cudamalloc_oom forbids.
        """
        if requested == 0:
            return None
        self.events.process()
        request = self._request(requested, stream)
        found = self._find_free_block(request)
        if not found:
            if self._collects_garbage():
                self._collect_garbage()
            request, found = self._find_elsewhere(request)
        if not found:
            raise self._out_of_memory(request)
        assert request.block is not None
        return self._take(request, request.block, requested)

    def free(self, block: Block) -> None:
        stats, kind = self.stats, block.pool.kind
        block.allocated = False
        stats.decrease(ALLOCATION, kind, 1)
        stats.decrease(ALLOCATED_BYTES, kind, block.size)
        if block.size >= self.config.max_split_size:
            stats.decrease_one(OVERSIZE_ALLOCATIONS, 1)
        if not block.stream_uses:
            self._free_block(block)
        else:
            self.events.insert(block)

    def record_stream(self, block: Block, stream: int) -> None:
        if stream == block.stream:
            return
        if block.stream_uses is None:
            block.stream_uses = set()
        block.stream_uses.add(stream)

    def empty_cache(self) -> None:
        self._release_cached_blocks()

    def set_memory_fraction(self, fraction: float) -> None:
        if not 0.0 <= fraction <= 1.0:
            raise AllocatorError(f"invalid fraction: {fraction}. Please set within [0, 1].")
        self.allowed_maximum = None
        if fraction < 1.0:
            self.allowed_maximum = int(fraction * float(self.device.capacity) + 0.5)

    def set_settings(self, settings: str) -> None:
        self.config.parse(settings)

    def pool_empty(self, number: int) -> None:
        """Release the free memory of a destroyed pool; nothing of a pool in use."""
        pool = self.private_pools.pools.get(number)
        if pool is None or pool.use_count > 0:
            return
        self._synchronize_events(pool)
        self._release_private_pool(pool)

    def reserved(self) -> int:
        return self.stats.values[RESERVED_BYTES]

    # Serving a request

    def _request(self, requested: int, stream: int) -> Request:
        size = self.config.round_size(requested)
        begun = self.private_pools.begun
        pool = _pool_for(size, begun[-1] if begun else self.default_pool)
        return Request(
            size, stream, pool, self._segment_size(size), self.config.expandable_segments
        )

    def _segment_size(self, size: int) -> int:
        if size <= SMALL_SIZE:
            return SMALL_SEGMENT
        if size < MIN_LARGE_SEGMENT_REQUEST:
            return self.config.large_segment_size
        return -(-size // ROUND_LARGE) * ROUND_LARGE

    def _find_free_block(self, request: Request) -> bool:
        """Find the best fit among the free blocks, and remove it from its pool."""
        pool, config = request.pool, self.config
        if self._collects_garbage():
            pool.searches += 1
        entries = pool.free.get(request.stream)
        if not entries:
            return False
        place = first_fit(pool, request.stream, request.size)
        if place == len(entries):
            return False
        if pool.block_of(entries[place]).segment is not None:
            search = find_expandable if request.expandable else skip_expandable
            place = search(pool, request.stream, place)
            if place == len(entries):
                return False
        block = pool.block_of(entries[place])
        if request.size < config.max_split_size <= block.size:
            return False
        most = request.size + config.max_non_split_rounding
        if request.size >= config.max_split_size and block.size >= most:
            return False
        pool.remove(block)
        request.block = block
        return True

    def _find_elsewhere(self, request: Request) -> tuple[Request, bool]:
        """Serve a request that no free block of its pool fits; return what was served."""
        if self._allocate_segment(request):
            return request, True
        overflow = self._find_in_overflow_pools(request)
        if overflow is not None:
            return overflow, True
        if self._release_available_cached_blocks(request) and self._allocate_segment(request):
            return request, True
        self._release_cached_blocks()
        self.stats.count(NUM_ALLOC_RETRIES)
        return request, self._allocate_segment(request)

    def _find_in_overflow_pools(self, request: Request) -> Request | None:
        if request.pool.owner.is_private:
            return None
        for owner in self.private_pools.with_use_on_oom():
            pool = _pool_for(request.size, owner)
            overflow = Request(
                request.size, request.stream, pool, request.segment_size, expandable=False
            )
            if self._find_free_block(overflow):
                return overflow
        return None

    def _allocate_segment(self, request: Request) -> bool:
        size, pool = request.segment_size, request.pool
        if self.allowed_maximum is not None and self.reserved() + size > self.allowed_maximum:
            return False
        self._reject_beyond_fraction(size)
        if request.expandable:
            request.block = self.expandable.allocate(pool, request.stream, request.size)
            return request.block is not None
        address = self.device.malloc(size)
        if address is None:
            return False
        pool.owner.reserved += size
        request.block = Block(address, size, request.stream, pool, self.device.placed_count)
        self.stats.increase(SEGMENT, pool.kind, 1)
        self.stats.increase(RESERVED_BYTES, pool.kind, size)
        if size >= self.config.max_split_size:
            self.stats.increase_one(OVERSIZE_SEGMENTS, 1)
        self.stats.count(NUM_DEVICE_ALLOC)
        return True

    def _reject_beyond_fraction(self, size: int) -> None:
        """Apply throw_on_cudamalloc_oom, which uses the settings' fraction, not the limit."""
        if self.config.throw_on_cudamalloc_oom:
            fraction = self.config.per_process_memory_fraction
            if self.reserved() + size > int(fraction * float(self.device.capacity)):
                raise OutOfMemoryRejected

    def _should_split(self, block: Block, request: Request) -> bool:
        if block.pool.owner.no_split:
            return False
        left = block.size - request.size
        if block.pool.is_small or request.expandable:
            return left >= MIN_BLOCK_SIZE
        return request.size < self.config.max_split_size and left > SMALL_SIZE

    def _take(self, request: Request, block: Block, requested: int) -> Block:
        """Allocate the front of a block that is in no pool, or all of it."""
        stats, pool = self.stats, request.pool
        kind = pool.kind
        was_split = block.is_split()
        ordinary = block.segment is None
        if self._should_split(block, request):
            rest = block
            block = rest.part(rest.address, request.size)
            block.insert_before(rest)
            rest.address += request.size
            rest.size -= request.size
            pool.insert(rest)
            if ordinary and was_split:
                stats.decrease(INACTIVE_SPLIT_BYTES, kind, block.size)
            elif ordinary:
                stats.increase(INACTIVE_SPLIT_BYTES, kind, rest.size)
                stats.increase(INACTIVE_SPLIT, kind, 1)
        elif was_split and ordinary:
            stats.decrease(INACTIVE_SPLIT_BYTES, kind, block.size)
            stats.decrease(INACTIVE_SPLIT, kind, 1)
        block.allocated = True
        block.requested = requested
        self.active[block.address] = block
        stats.increase(ALLOCATION, kind, 1)
        stats.increase(ALLOCATED_BYTES, kind, block.size)
        stats.increase(ACTIVE, kind, 1)
        stats.increase(ACTIVE_BYTES, kind, block.size)
        stats.increase(REQUESTED_BYTES, kind, requested)
        if block.size >= self.config.max_split_size:
            stats.increase_one(OVERSIZE_ALLOCATIONS, 1)
        return block

    def _free_block(self, block: Block) -> None:
        """Add a block that nothing uses any more to the free ones."""
        stats, pool = self.stats, block.pool
        size, requested = block.size, block.requested
        del self.active[block.address]
        block.requested = 0
        split_blocks = split_bytes = 0
        for neighbour in (block.prev, block.next):
            won = try_merge(block, neighbour)
            if won:
                split_blocks -= 1
                split_bytes -= won
        pool.insert(block)
        if block.segment is None:
            if block.is_split():
                split_blocks += 1
                split_bytes += block.size
            stats.change(INACTIVE_SPLIT, pool.kind, split_blocks)
            stats.change(INACTIVE_SPLIT_BYTES, pool.kind, split_bytes)
        stats.decrease(ACTIVE, pool.kind, 1)
        stats.decrease(ACTIVE_BYTES, pool.kind, size)
        stats.decrease(REQUESTED_BYTES, pool.kind, requested)

    # Releasing memory

    def _collects_garbage(self) -> bool:
        return self.allowed_maximum is not None and self.config.garbage_collection_threshold > 0.0

    def _collect_garbage(self) -> None:
        assert self.allowed_maximum is not None
        threshold = int(self.config.garbage_collection_threshold * float(self.allowed_maximum))
        target = self.reserved() - threshold
        if target <= 0:
            return
        pool = self.default_pool.large
        left = [b for b in pool.in_order() if b.segment is None and not b.is_split()]
        reclaimed = 0
        while left and reclaimed < target:
            average = sum(map(pool.age, left)) / len(left)
            old = [block for block in left if pool.age(block) >= average]
            left = [block for block in left if pool.age(block) < average]
            for block in old:
                reclaimed += block.size
                self._release_block(block)

    def _release_available_cached_blocks(self, request: Request) -> bool:
        """Release oversize blocks until they sum to the request; return whether they do."""
        limit = self.config.max_split_size
        if limit == UNLIMITED:
            return False
        pool = request.pool
        target = max(request.size, limit)
        entries = pool.free.get(request.stream, [])
        place = first_fit(pool, request.stream, target)
        if place < len(entries):
            block = pool.block_of(entries[place])
            if block.segment is None:
                self._release_block(block)
                return True
        released = 0
        for entry in reversed(entries[:place]):
            block = pool.block_of(entry)
            if released >= target or block.size < limit:
                break
            if block.segment is None:
                released += block.size
                self._release_block(block)
        return released >= target

    def _synchronize_events(self, owner: PoolPair | None = None) -> None:
        self.stats.count(NUM_SYNC_ALL_STREAMS)
        self.events.synchronize(owner)

    def _release_cached_blocks(self) -> None:
        self._synchronize_events()
        self._release_blocks(self.default_pool.large)
        self._release_blocks(self.default_pool.small)
        for owner in self.private_pools.freeable():
            self._release_private_pool(owner)

    def _release_private_pool(self, owner: PoolPair) -> None:
        self._release_blocks(owner.small)
        self._release_blocks(owner.large)
        self.private_pools.forget_if_empty(owner)

    def _release_blocks(self, pool: BlockPool) -> None:
        to_unmap = []
        for block in pool.in_order():
            if block.segment is not None:
                to_unmap.append(block)
            elif not block.is_split():
                self._release_block(block)
        for block in to_unmap:
            self.expandable.give_back(block)

    def _release_block(self, block: Block) -> None:
        assert block.segment is None and not block.is_split()
        pool, size = block.pool, block.size
        self.stats.count(NUM_DEVICE_FREE)
        self.device.free(block.address, size)
        pool.owner.reserved -= size
        self.stats.decrease(SEGMENT, pool.kind, 1)
        self.stats.decrease(RESERVED_BYTES, pool.kind, size)
        if size >= self.config.max_split_size:
            self.stats.decrease_one(OVERSIZE_SEGMENTS, 1)
        pool.remove(block)

    def _out_of_memory(self, request: Request) -> OutOfMemoryError:
        self.stats.count(NUM_OOMS)
        private = sum(b.size for owner in self.private_pools for b in owner.free_blocks())
        allocated = self.stats.values[ALLOCATED_BYTES] + private
        return OutOfMemoryError(
            tried=request.segment_size,
            free=self.device.free_bytes(),
            allowed=-1 if self.allowed_maximum is None else self.allowed_maximum,
            allocated=allocated,
            private=private,
            unallocated=self.reserved() - allocated,
        )


def _pool_for(size: int, owner: PoolPair) -> BlockPool:
    return owner.small if size <= SMALL_SIZE else owner.large
