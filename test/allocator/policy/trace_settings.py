"""Random settings strings for traces.

`max_split_size_mb` is drawn once and named in every later string of a trace: CUDA's allocator fails
when it is lowered, and a string that does not name it sets it to no limit. With it, expandable
segments are only ever switched off. Switched on again, they let ordinary oversize blocks be split,
and CUDA then releases the free part of a segment that is in use.
"""

from __future__ import annotations

from random import Random

LARGE_SEGMENT_SIZES = (12, 14, 16, 20, 24, 32, 64)
DIVISIONS = (0, 1, 2, 4, 8, 16, 32)


class SettingsGenerator:
    """The settings of one trace.

    Attributes
    ----------
    expandable : {"off", "on", "changes"}
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.expandable = random.choices(("off", "on", "changes"), (50, 25, 25))[0]
        self.names_throw = random.random() < 0.2
        self.names_large_segment_size = random.random() < 0.2
        self.names_roundup = random.random() < 0.35
        self.names_garbage_collection = random.random() < 0.4
        self.large_segment_size = 20
        if self.names_large_segment_size:
            self.large_segment_size = random.choice(LARGE_SEGMENT_SIZES)
        self.max_split: list[str] = self._max_split() if random.random() < 0.35 else []

    def first(self) -> str:
        """Return the string that a player is started with."""
        parts = list(self.max_split)
        if self.names_large_segment_size:
            parts.append(f"large_segment_size_mb:{self.large_segment_size}")
        begins_expandable = self.random.random() < 0.5 or bool(self.max_split)
        if self.expandable == "on" or (self.expandable == "changes" and begins_expandable):
            parts.append("expandable_segments:True")
        if self.random.random() < 0.1:
            parts.append(f"per_process_memory_fraction:{self.random.choice((0.5, 0.75, 0.9, 1.0))}")
        return self._joined(parts + self._varying())

    def later(self) -> str:
        """Return one that changes the settings of a running trace."""
        parts = list(self.max_split)
        if self.expandable == "changes":
            choices = ("False",) if self.max_split else ("True", "False")
            parts.append(f"expandable_segments:{self.random.choice(choices)}")
        if self.names_large_segment_size and self.random.random() < 0.3:
            least = min([int(part.split(":")[1]) for part in self.max_split], default=64)
            allowed = [size for size in LARGE_SEGMENT_SIZES if size <= least]
            self.large_segment_size = self.random.choice(allowed)
            parts.append(f"large_segment_size_mb:{self.large_segment_size}")
        if self.random.random() < 0.2:
            parts.append(f"per_process_memory_fraction:{self.random.choice((0.3, 0.7, 0.95, 1.0))}")
        return self._joined(parts + self._varying())

    def _joined(self, parts: list[str]) -> str:
        self.random.shuffle(parts)
        return ",".join(parts)

    def _max_split(self) -> list[str]:
        least = self.large_segment_size
        sizes = [least, least + 1, 2 * least, 40, 64, 100, 200]
        allowed = [size for size in sizes if size >= least]
        parts = [f"max_split_size_mb:{self.random.choice(allowed)}"]
        if self.random.random() < 0.5:
            parts.append(f"max_non_split_rounding_mb:{self.random.choice(allowed)}")
        return parts

    def _varying(self) -> list[str]:
        parts = []
        if self.names_roundup and self.random.random() < 0.8:
            parts.append(f"roundup_power2_divisions:{self._roundup()}")
        if self.names_garbage_collection and self.random.random() < 0.8:
            threshold = self.random.choice((0.1, 0.3, 0.5, 0.6, 0.8, 0.95))
            parts.append(f"garbage_collection_threshold:{threshold}")
        if self.names_throw and self.random.random() < 0.6:
            parts.append(f"throw_on_cudamalloc_oom:{self.random.choice((True, True, False))}")
        return parts

    def _roundup(self) -> str:
        random = self.random
        if random.random() < 0.5:
            return str(random.choice(DIVISIONS[1:]))
        intervals = sorted(random.sample(range(10), random.randint(1, 4)))
        entries = [f"{1 << interval}:{random.choice(DIVISIONS)}" for interval in intervals]
        if random.random() < 0.6:
            entries.append(f">:{random.choice(DIVISIONS)}")
        return f"[{','.join(entries)}]"
