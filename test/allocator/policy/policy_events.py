"""Blocks that the program has freed and other streams may still use.

There is one queue of (event, block) for each stream. A block is free when its last event is seen to
be done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from policy_blocks import Block
from policy_device import Device
from policy_pools import PoolPair


class EventQueues:
    def __init__(self, device: Device, release: Callable[[Block], None]) -> None:
        self.device = device
        self.release = release
        self.queues: dict[int, deque[tuple[int, Block]]] = {}

    def insert(self, block: Block) -> None:
        """Turn the recorded uses of a freed block into events."""
        streams = block.stream_uses or ()
        block.stream_uses = None
        for stream in streams:
            block.event_count += 1
            event = self.device.record_event(stream)
            self.queues.setdefault(stream, deque()).append((event, block))

    def process(self) -> None:
        """Check the events: for each stream in order, up to the first that is not done."""
        for stream in sorted(self.queues):
            queue = self.queues[stream]
            while queue and self.device.event_is_done(stream, queue[0][0]):
                self._finish(queue.popleft()[1])
            if not queue:
                del self.queues[stream]

    def synchronize(self, owner: PoolPair | None = None) -> None:
        """Wait for all events, or for those of one private pool's blocks."""
        for stream in sorted(self.queues):
            waiting: deque[tuple[int, Block]] = deque()
            for event, block in self.queues[stream]:
                if owner is not None and block.pool.owner is not owner:
                    waiting.append((event, block))
                    continue
                self.device.go(stream)
                self._finish(block)
            if waiting:
                self.queues[stream] = waiting
            else:
                del self.queues[stream]

    def _finish(self, block: Block) -> None:
        block.event_count -= 1
        if block.event_count == 0:
            self.release(block)
