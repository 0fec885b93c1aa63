"""A trace played by the model alone, for tests."""

from __future__ import annotations

from invariants import invariants
from policy_session import Session
from policy_stats import NAMES

MIB = 1 << 20
GIB = 1 << 30


class Game:
    """Plays commands, and checks the model's invariants after each."""

    def __init__(self, capacity: int = GIB, settings: str = "") -> None:
        self.session = Session(capacity, settings)
        self.segments = ""

    def play(self, command: str) -> str:
        result, self.segments, _ = self.session.answer(command).split(";")
        invariants(self.session.allocator)
        return result

    def play_all(self, *commands: str) -> list[str]:
        return [self.play(command) for command in commands]

    def alloc(self, number: int, size: float, stream: int = 0) -> tuple[int, int]:
        """Return address and size of the block; (0, 0) also if memory runs out."""
        words = self.play(f"alloc {number} {int(size)} {stream}").split()
        return (int(words[1]), int(words[2])) if words[0] == "block" else (0, 0)

    def oom(self, size: float, stream: int = 0) -> list[int]:
        word, *values = self.play(f"alloc 999999 {int(size)} {stream}").split()
        assert word == "oom"
        return [int(figure) for figure in values]

    def figure(self, name: str) -> int:
        return self.session.allocator.stats.values[NAMES.index(name)]

    def values(self, name: str) -> list[int]:
        """current, peak, allocated, freed"""
        return [self.figure(f"{name}.{f}") for f in ("current", "peak", "allocated", "freed")]

    def current(self, name: str, kind: str = "all") -> int:
        return self.figure(f"{name}.{kind}.current")

    def snapshot(self) -> list[str]:
        text = self.play("snapshot").removeprefix("snapshot").strip()
        return text.split("|") if text else []

    def states(self) -> list[str]:
        """size:state of all blocks by address"""
        blocks = [block for segment in self.snapshot() for block in segment.split()[6:]]
        return [f"{b.split(',')[1]}:{b.split(',')[3]}" for b in blocks]
