"""Random traces of the protocol, the same ones for the same seed.

A trace is written without looking at answers: a block that an `alloc` did not get is freed and
recorded like any other, and players do nothing then. Traces omit what CUDA's allocator fails at:

- `max_split_size_mb` does not change after the start, and with it expandable segments are not
  switched on again;
- a private pool is not begun again after its end by `pool_destroy`, and where segments are ever
  expandable it is not destroyed;
- settings strings that are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from trace_settings import SettingsGenerator

KIB, MIB = 1 << 10, 1 << 20
CAPACITIES_MIB = (40, 64, 100, 128, 200, 256, 512, 1024, 2048, 4096, 8192)
EDGES = (512, 64 * KIB, MIB, 2 * MIB, 10 * MIB, 12 * MIB, 20 * MIB)
MOST_BLOCKS = 1500
FRACTIONS = ("0", "0.25", "0.3333", "0.5", "0.625", "0.8", "0.9", "0.95", "0.999", "1", "1.0")


@dataclass
class Trace:
    capacity: int
    settings: str
    commands: list[str]


class TraceWriter:
    """Writes one trace, assuming that every request succeeds."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = random = Random(seed)
        self.steps = steps
        self.settings = SettingsGenerator(random)
        self.capacity = random.choice(CAPACITIES_MIB) * MIB
        if random.random() < 0.5:
            self.capacity += 2 * MIB * random.randint(0, 50)
        self.first_settings = self.settings.first()
        self.streams = random.sample(range(8), random.choice((1, 1, 2, 3, 5)))
        if random.random() < 0.7 and 0 not in self.streams:
            self.streams[0] = 0
        self.commands: list[str] = []
        self.blocks: list[tuple[int, int]] = []  # (number, bytes) of those that the program holds
        self.bytes = 0
        self.allowed = self.capacity
        self.fullness = 1.0  # the fraction of its limit that the program holds at most
        self.number = 0
        self.held: set[int] = set()  # streams held since the last `go`
        self.pools: list[int] = []  # private pools that are not yet destroyed
        self.destroyed: list[int] = []
        self.most_pools = random.choice((1, 2, 3, 6))
        self.begun: int | None = None
        self.palette = [self._new_size() for _ in range(random.randint(3, 25))]
        self.rare = self._rare_actions()

    def write(self) -> Trace:
        while len(self.commands) < self.steps:
            self._phase()
        self._finish()
        return Trace(self.capacity, self.first_settings, self.commands)

    # Phases

    def _phase(self) -> None:
        random = self.random
        if random.random() < 0.15:
            self._iterations()
            return
        alloc, free = random.choice(((70, 20), (45, 45), (48, 44), (20, 70), (85, 5), (5, 85)))
        self.fullness = random.choice((0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2))
        length = random.randint(20, 300)
        for _ in range(length):
            self._step(alloc, free)
        if random.random() < 0.1:
            while self.blocks:
                self._free()

    def _step(self, alloc: int, free: int) -> None:
        draw = self.random.random() * 100
        crowded = bool(self.blocks) and (
            len(self.blocks) >= MOST_BLOCKS or self.bytes > self.fullness * self.allowed
        )
        if draw < alloc and not crowded:
            self._alloc()
        elif draw < alloc + free or crowded:
            self._free()
        elif self.random.random() < 0.5:
            self._record()
        else:
            actions, weights = self.rare
            self.random.choices(actions, weights)[0]()

    def _iterations(self) -> None:
        """Repeat the same requests, as a training loop does."""
        sizes = [self._size() for _ in range(self.random.randint(2, 30))]
        stream = self.random.choice(self.streams)
        for _ in range(self.random.randint(2, 6)):
            first = self.number + 1
            for size in sizes:
                self._alloc(size, stream)
            while self.blocks and self.blocks[-1][0] >= first:
                self._free(len(self.blocks) - 1)

    def _finish(self) -> None:
        if self.begun is not None:
            self._pool_end()
        for stream in sorted(self.held):
            self._go(stream)
        if self.random.random() < 0.5:
            while self.blocks:
                self._free()
            self._say("empty")
            for number in self.destroyed:
                self._say(f"pool_empty {number}")
        self._say("snapshot")

    # Sizes

    def _new_size(self) -> int:
        size = self._any_size()
        most = self.capacity // 2
        return size if size <= most or self.random.random() < 0.1 else size % most + 1

    def _any_size(self) -> int:
        random = self.random
        kind = random.random()
        if kind < 0.25:
            return random.randint(1, MIB)
        if kind < 0.5:
            return self._edge_size()
        if kind < 0.8:
            most = min(400 * MIB, max(2 * MIB, self.capacity // random.choice((3, 6, 12, 40))))
            return random.randint(MIB, most)
        return int(2 ** random.uniform(9, 27))

    def _edge_size(self) -> int:
        random = self.random
        edges = [*EDGES, self.settings.large_segment_size * MIB, 1 << random.randint(10, 28)]
        for part in self.settings.max_split:
            edges.append(int(part.split(":")[1]) * MIB)
        edge = random.choice(edges) * random.choice((1, 1, 1, 2, 3))
        return max(1, edge + random.choice((-MIB, -513, -512, -1, 0, 0, 0, 1, 512, 4 * KIB, MIB)))

    def _size(self) -> int:
        random = self.random
        draw = random.random()
        if draw < 0.6:
            return random.choice(self.palette)
        if draw < 0.75:
            return random.randint(1, 64 * KIB)
        if draw < 0.995:
            return self._new_size()
        return random.choice((0, self.capacity, self.capacity // 2, self.capacity + 1))

    # Actions

    def _say(self, command: str) -> None:
        self.commands.append(command)

    def _alloc(self, size: int | None = None, stream: int | None = None) -> None:
        self.number += 1
        size = self._size() if size is None else size
        stream = self.random.choice(self.streams) if stream is None else stream
        self._say(f"alloc {self.number} {size} {stream}")
        self.blocks.append((self.number, size))
        self.bytes += size

    def _free(self, index: int | None = None) -> None:
        if not self.blocks:
            return
        if index is None:
            last = len(self.blocks) - 1
            index = self.random.choice((0, last, self.random.randint(0, last)))
        number, size = self.blocks.pop(index)
        self.bytes -= size
        self._say(f"free {number}")

    def _record(self) -> None:
        if not self.blocks:
            return
        index = self.random.randrange(len(self.blocks))
        number = self.blocks[index][0]
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self._say(f"record {number} {self.random.choice(self.streams)}")
        if self.random.random() < 0.6:
            self._free(index)

    def _hold(self) -> None:
        stream = self.random.choice(self.streams)
        if stream in self.held:
            self._go(stream)
        else:
            self.held.add(stream)
            self._say(f"hold {stream}")

    def _go(self, stream: int) -> None:
        self.held.discard(stream)
        self._say(f"go {stream}")

    def _go_any(self) -> None:
        if self.held:
            self._go(self.random.choice(sorted(self.held)))

    def _fraction(self) -> None:
        fraction = self.random.choice(FRACTIONS)
        if self.allowed < self.capacity and self.random.random() < 0.5:
            fraction = "1"
        elif self.random.random() < 0.3:
            fraction = str(self.random.randrange(1, self.capacity // MIB) * MIB / self.capacity)
        self.allowed = int(float(fraction) * self.capacity)
        self._say(f"fraction {fraction}")

    def _set_settings(self) -> None:
        self._say(f"settings {self.settings.later()}".rstrip())

    def _pool_create(self) -> None:
        number = len(self.pools) + len(self.destroyed) + 1
        use_on_oom = self.random.random() < 0.5
        no_split = self.random.random() < 0.3
        self.pools.append(number)
        self._say(f"pool_create {number} {int(use_on_oom)} {int(no_split)}")

    def _pool_turn(self) -> None:
        """Write the next step in the life of the private pools."""
        random = self.random
        if self.begun is not None:
            if random.random() < 0.5:
                self._pool_end()
        elif not self.pools or (len(self.pools) < self.most_pools and random.random() < 0.25):
            self._pool_create()
        elif random.random() < 0.75:
            self.begun = random.choice(self.pools)
            self._say(f"pool_begin {self.begun}")
        elif self.settings.expandable == "off" and random.random() < 0.5:
            number = random.choice(self.pools)
            self.pools.remove(number)
            self.destroyed.append(number)
            self._say(f"pool_destroy {number}")
        elif self.destroyed:
            self._say(f"pool_empty {random.choice(self.destroyed)}")

    def _pool_end(self) -> None:
        self._say(f"pool_end {self.begun}")
        self.begun = None

    def _rare_actions(self) -> tuple[list[Callable[[], None]], list[float]]:
        random = self.random
        actions: list[tuple[Callable[[], None], float]] = [
            (self._hold, 12),
            (self._go_any, 6),
            (lambda: self._say("empty"), random.choice((0.2, 2, 6))),
            (lambda: self._say("reset_peak"), 2),
            (lambda: self._say("reset_accumulated"), 1),
            (lambda: self._say("snapshot"), 0.7),
        ]
        if random.random() < 0.6 or self.settings.names_garbage_collection:
            actions.append((self._fraction, random.choice((0.5, 3))))
        if random.random() < 0.6 or self.settings.expandable == "changes":
            actions.append((self._set_settings, random.choice((0.5, 3))))
        if random.random() < 0.4:
            actions.append((self._pool_turn, 20))
        return [action for action, _ in actions], [weight for _, weight in actions]


def generate(seed: int, steps: int) -> Trace:
    """Return a trace of about `steps` commands."""
    return TraceWriter(seed, steps).write()


def main() -> None:
    trace = generate(int(sys.argv[1]), int(sys.argv[2]))
    print(f"# {trace.capacity} {trace.settings}".rstrip())
    print("\n".join(trace.commands))


if __name__ == "__main__":
    main()
