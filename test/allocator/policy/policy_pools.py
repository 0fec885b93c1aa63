"""The program's private pools: how they are created, begun, ended and destroyed."""

from __future__ import annotations

from collections.abc import Iterator

from policy_blocks import Block, BlockPool
from policy_stats import LARGE, SMALL


class AllocatorError(RuntimeError):
    """A call that CUDA's allocator refuses or asserts against."""


# Pools with use_on_oom are tried in the order of a hash table that hashes their numbers in this
# way. Numbers that share a slot (1 and 9, if there are only these) come in the order of insertion,
# which is not modelled.
FIBONACCI_MULTIPLIER = 11400714819323198485


class PoolPair:
    """The small and the large pool of one owner, which has number 0 if it is the device."""

    def __init__(self, number: int = 0, use_on_oom: bool = False, no_split: bool = False) -> None:
        self.number = number
        self.use_on_oom = use_on_oom
        self.no_split = no_split
        self.small = BlockPool(SMALL, self)
        self.large = BlockPool(LARGE, self)
        self.reserved = 0  # bytes reserved from the driver
        self.use_count = 1

    @property
    def is_private(self) -> bool:
        return self.number != 0

    def free_blocks(self) -> Iterator[Block]:
        yield from self.small.blocks.values()
        yield from self.large.blocks.values()


class PrivatePools:
    """All private pools that exist, in the order of creation.

    A pool's `use_count` counts its owner and a current pool_begin. At 0 its memory may be released,
    and the pool is gone when it has none left.
    """

    def __init__(self) -> None:
        self.pools: dict[int, PoolPair] = {}
        self.begun: list[PoolPair] = []  # requests go to the last one

    def __iter__(self) -> Iterator[PoolPair]:
        return iter(list(self.pools.values()))

    def freeable(self) -> list[PoolPair]:
        return [pool for pool in self if pool.use_count == 0]

    def with_use_on_oom(self) -> list[PoolPair]:
        """Return the pools that requests of the default pool may use, in the order of trying."""
        pools = [pool for pool in self if pool.use_on_oom]
        return sorted(pools, key=lambda pool: pool.number * FIBONACCI_MULTIPLIER % 2**64)

    def create(self, number: int, use_on_oom: bool, no_split: bool) -> None:
        if number in self.pools:
            raise AllocatorError(f"pool {number} exists")
        self.pools[number] = PoolPair(number, use_on_oom, no_split)

    def begin(self, number: int) -> None:
        pool = self._get(number)
        if pool in self.begun or pool.use_count == 0:
            raise AllocatorError(f"pool {number} is begun or destroyed")
        pool.use_count += 1
        self.begun.append(pool)

    def end(self, number: int) -> None:
        pool = self._get(number)
        if pool not in self.begun:
            raise AllocatorError(f"pool {number} is not begun")
        self.begun.remove(pool)
        pool.use_count -= 1

    def destroy(self, number: int) -> None:
        pool = self._get(number)
        if pool.use_count == 0:
            raise AllocatorError(f"pool {number} is destroyed")
        pool.use_on_oom = False
        pool.use_count -= 1

    def forget_if_empty(self, pool: PoolPair) -> None:
        if pool.reserved == 0:
            del self.pools[pool.number]

    def _get(self, number: int) -> PoolPair:
        pool = self.pools.get(number)
        if pool is None:
            raise AllocatorError(f"there is no pool {number}")
        return pool
