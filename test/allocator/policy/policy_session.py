"""Plays commands of the trace protocol on the model, and returns its answer lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from policy import Allocator, OutOfMemoryError, OutOfMemoryRejected
from policy_blocks import Block
from policy_config import ConfigError
from policy_device import Placement
from policy_pools import AllocatorError


class Session:
    """One trace played by the model.

    A `free` or `record` of a block that is not held, because its `alloc` failed or had 0 bytes,
    does nothing and is answered with ok.
    """

    def __init__(self, capacity: int, settings: str, placement: Placement | None = None) -> None:
        self.allocator = Allocator(capacity, settings, placement)
        self.blocks: dict[str, Block] = {}
        allocator, device = self.allocator, self.allocator.device
        pools = allocator.private_pools
        self.plain: dict[str, Callable[..., None]] = {
            "hold": lambda stream: device.hold(int(stream)),
            "go": lambda stream: device.go(int(stream)),
            "empty": allocator.empty_cache,
            "fraction": lambda fraction: allocator.set_memory_fraction(float(fraction)),
            "settings": lambda settings="": allocator.set_settings(settings),
            "pool_create": lambda number, use_on_oom, no_split: pools.create(
                int(number), use_on_oom == "1", no_split == "1"
            ),
            "pool_begin": lambda number: pools.begin(int(number)),
            "pool_end": lambda number: pools.end(int(number)),
            "pool_destroy": lambda number: pools.destroy(int(number)),
            "pool_empty": lambda number: allocator.pool_empty(int(number)),
            "reset_peak": allocator.stats.reset_peak,
            "reset_accumulated": allocator.stats.reset_accumulated,
        }

    def answer(self, command: str) -> str:
        result = self._result(command.split())
        placed = self.allocator.device.take_placed()
        return f"{result};{placed};{self.allocator.stats.line()}"

    def _result(self, words: list[str]) -> str:
        name = words[0]
        try:
            if name == "alloc":
                return self._alloc(words[1], int(words[2]), int(words[3]))
            if name == "free":
                block = self.blocks.pop(words[1], None)
                if block is not None:
                    self.allocator.free(block)
            elif name == "record":
                block = self.blocks.get(words[1])
                if block is not None:
                    self.allocator.record_stream(block, int(words[2]))
            elif name == "snapshot":
                return f"snapshot {'|'.join(snapshot(self.allocator))}"
            elif name in self.plain:
                self.plain[name](*words[1:])
            else:
                return f"error unknown command {name}"
        except (AllocatorError, ConfigError) as error:
            return f"error {error}"
        return "ok"

    def _alloc(self, number: str, size: int, stream: int) -> str:
        try:
            block = self.allocator.malloc(size, stream)
        except OutOfMemoryError as e:
            return f"oom {e.tried} {e.free} {e.allowed} {e.allocated} {e.private} {e.unallocated}"
        except OutOfMemoryRejected:
            return "error rejected"
        if block is None:
            return "block 0 0"
        self.blocks[number] = block
        return f"block {block.address} {block.size}"


def all_blocks(allocator: Allocator) -> Iterator[Block]:
    """Return the mapped blocks, in no order."""
    yield from allocator.active.values()
    for owner in (allocator.default_pool, *allocator.private_pools):
        yield from owner.free_blocks()


def snapshot(allocator: Allocator) -> list[str]:
    """Return each segment, or mapped run of an expandable one, by address."""
    heads = [b for b in all_blocks(allocator) if b.prev is None or not b.prev.mapped]
    return [_segment(head) for head in sorted(heads, key=lambda block: block.address)]


def _segment(head: Block) -> str:
    parts = []
    size = 0
    block: Block | None = head
    while block is not None and block.mapped:
        parts.append(f"{block.address},{block.size},{block.requested},{_state(block)}")
        size += block.size
        block = block.next
    kind = "small" if head.pool.is_small else "large"
    expandable = int(head.segment is not None)
    pool = head.pool.owner.number
    return f"{head.address} {size} {head.stream} {kind} {expandable} {pool} {' '.join(parts)}"


def _state(block: Block) -> str:
    if block.allocated:
        return "allocated"
    return "free" if block.is_available() else "awaiting"
