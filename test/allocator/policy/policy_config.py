"""The settings string of the caching allocator: its grammar, its checks, its defaults.

The parser reads a string token by token, and settings take effect as they are read, so those before
a mistake take effect. It reads the keys common to all devices first, then CUDA's own. The position
of a token determines its meaning: a key is followed by a separator, its value, and a separator. The
separators themselves are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MIB = 1 << 20
UNLIMITED = (1 << 64) - 1
ROUNDUP_INTERVALS = 16
ROUNDUP_FIRST_LOG2 = 20  # intervals start at 1 MiB; the first one also contains smaller sizes
MIN_BLOCK_SIZE = 512

DEFAULT_LARGE_SEGMENT_SIZE = 20 * MIB
LARGE_SEGMENT_SIZE_MB_ABOVE = 10
MOST_REGISTER_THREADS = 128
BACKENDS = ("native", "cudaMallocAsync")

WHOLE_NUMBER = re.compile(r"[+-]?\d+")
FRACTION = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class ConfigError(ValueError):
    """A settings string that the allocator refuses."""


class Config:
    """The current settings; `parse` changes them.

    Attributes
    ----------
    max_split_size : int
        Bytes; `UNLIMITED` when off.
    roundup_divisions : list of int
        One number for each power of two from 1 MiB to 32 GiB; 0 is off.
    """

    def __init__(self, settings: str = "") -> None:
        self.large_segment_size = DEFAULT_LARGE_SEGMENT_SIZE
        self.expandable_segments = False
        self.per_process_memory_fraction = 1.0
        self.throw_on_cudamalloc_oom = False
        self.common_keys: dict[str, Callable[[Tokens, int], int]] = {
            "max_split_size_mb": self._max_split_size,
            "max_non_split_rounding_mb": self._max_non_split_rounding,
            "large_segment_size_mb": _check_number,  # it has taken effect already
            "garbage_collection_threshold": self._garbage_collection_threshold,
            "roundup_power2_divisions": self._roundup,
            "expandable_segments": self._expandable_segments,
            "pinned_use_background_threads": _check_boolean,
            "pinned_free_catch_all": _check_boolean,
            "pinned_max_round_threshold_mb": _check_number,
            "pinned_max_cached_size_mb": _check_number,
            "pinned_reserve_segment_size_mb": _check_positive_number,
        }
        self.cuda_keys: dict[str, Callable[[Tokens, int], int]] = {
            "backend": _check_backend,
            "per_process_memory_fraction": self._per_process_memory_fraction,
            "throw_on_cudamalloc_oom": self._throw_on_cudamalloc_oom,
            "release_lock_on_cudamalloc": _check_boolean,
            "graph_capture_record_stream_reuse": _check_boolean,
            "pinned_use_cuda_host_register": _check_boolean,
            "pinned_num_register_threads": _check_register_threads,
        }
        self.parse(settings)

    def parse(self, settings: str) -> None:
        """Apply `settings`; at a ConfigError, those before the mistake."""
        self.max_split_size = UNLIMITED
        self.garbage_collection_threshold = 0.0
        self.roundup_divisions = [0] * ROUNDUP_INTERVALS
        tokens = Tokens(settings)
        for place, token in enumerate(tokens.words):
            if token == "large_segment_size_mb":
                self._large_segment_size(tokens, place + 2)
        self.max_non_split_rounding = self.large_segment_size
        self._assign(tokens, self.common_keys)
        self._assign(tokens, self.cuda_keys)

    def round_size(self, size: int) -> int:
        """Return the bytes of the block for a request of `size` > 0 bytes."""
        if size >= MIN_BLOCK_SIZE:
            interval = max(0, size.bit_length() - 1 - ROUNDUP_FIRST_LOG2)
            divisions = self.roundup_divisions[min(interval, ROUNDUP_INTERVALS - 1)]
            if divisions > 1 and size > MIN_BLOCK_SIZE * divisions:
                step = (1 << (size.bit_length() - 1)) // divisions
                return -(-size // step) * step
        return -(-size // MIN_BLOCK_SIZE) * MIN_BLOCK_SIZE

    def _assign(self, tokens: Tokens, keys: dict[str, Callable[[Tokens, int], int]]) -> None:
        """Read the values of `keys`, and skip those of the other known keys."""
        place = 0
        while place < len(tokens.words):
            key = tokens.words[place]
            if key not in self.common_keys and key not in self.cuda_keys:
                raise ConfigError(f"unrecognized key {key}")
            read = keys.get(key, _skip)
            place = read(tokens, place + 2) + 2

    # Each takes the position of a value, and returns the position of the value's last token.

    def _large_segment_size(self, tokens: Tokens, place: int) -> None:
        megabytes = tokens.number(place)
        if megabytes <= LARGE_SEGMENT_SIZE_MB_ABOVE:
            raise ConfigError(f"large_segment_size_mb:{megabytes}: expected more than 10")
        self.large_segment_size = _bytes(megabytes)

    def _max_split_size(self, tokens: Tokens, place: int) -> int:
        self.max_split_size = self._at_least_a_large_segment(tokens.number(place))
        return place

    def _max_non_split_rounding(self, tokens: Tokens, place: int) -> int:
        self.max_non_split_rounding = self._at_least_a_large_segment(tokens.number(place))
        return place

    def _at_least_a_large_segment(self, megabytes: int) -> int:
        if _bytes(megabytes) < self.large_segment_size:
            least = self.large_segment_size // MIB
            raise ConfigError(f"{megabytes} MiB is too small, expected at least {least}")
        return _bytes(megabytes)

    def _garbage_collection_threshold(self, tokens: Tokens, place: int) -> int:
        threshold = tokens.fraction(place)
        if not 0.0 < threshold < 1.0:
            raise ConfigError(f"garbage_collection_threshold:{threshold}: expected one in (0, 1)")
        self.garbage_collection_threshold = threshold
        return place

    def _per_process_memory_fraction(self, tokens: Tokens, place: int) -> int:
        fraction = tokens.fraction(place)
        if not 0.0 <= fraction <= 1.0:
            raise ConfigError(f"per_process_memory_fraction:{fraction}: expected one in [0, 1]")
        self.per_process_memory_fraction = fraction
        return place

    def _expandable_segments(self, tokens: Tokens, place: int) -> int:
        self.expandable_segments = tokens.boolean(place)
        return place

    def _throw_on_cudamalloc_oom(self, tokens: Tokens, place: int) -> int:
        self.throw_on_cudamalloc_oom = tokens.boolean(place)
        return place

    def _roundup(self, tokens: Tokens, place: int) -> int:
        if tokens.at(place) == "[":
            return self._roundup_list(tokens, place + 1)
        divisions = tokens.number(place)
        if not is_power_of_two(divisions):
            raise ConfigError(f"roundup_power2_divisions:{divisions}: expected a power of two")
        self.roundup_divisions = [divisions] * ROUNDUP_INTERVALS
        return place

    def _roundup_list(self, tokens: Tokens, place: int) -> int:
        """Parse interval:divisions,... The first one also fills the intervals below it."""
        last = 0
        first = True
        while tokens.at(place) != "]":
            interval, divisions = tokens.at(place), tokens.number(place + 2)
            if divisions != 0 and not is_power_of_two(divisions):
                raise ConfigError(f"divisions {divisions}: expected 0 or a power of two")
            if interval == ">":
                behind = ROUNDUP_INTERVALS - last - 1
                self.roundup_divisions[last + 1 :] = [divisions] * behind
            else:
                megabytes = tokens.number(place)
                if not is_power_of_two(megabytes):
                    raise ConfigError(f"interval {megabytes}: expected a power of two")
                last = min(megabytes.bit_length() - 1, ROUNDUP_INTERVALS - 1)
                if first:
                    self.roundup_divisions[:last] = [divisions] * last
                    first = False
                self.roundup_divisions[last] = divisions
            place += 3
            if tokens.at(place) != "]":
                place += 1
        return place


class Tokens:
    """Commas, colons, brackets, and the words between them without their blanks."""

    def __init__(self, settings: str) -> None:
        self.words: list[str] = re.findall(r"[,:\[\]]|[^,:\[\]]+", re.sub(r"\s", "", settings))

    def at(self, place: int) -> str:
        if place >= len(self.words):
            raise ConfigError(f"the settings end after {self.words[-1]}, expected a value")
        return self.words[place]

    def number(self, place: int) -> int:
        """Return the whole number at the start of the token; a negative one wraps as in C."""
        found = WHOLE_NUMBER.match(self.at(place))
        if found is None or abs(int(found[0])) > UNLIMITED:
            raise ConfigError(f"{self.at(place)}: expected a whole number")
        return int(found[0]) & UNLIMITED

    def fraction(self, place: int) -> float:
        """Return the number at the start of the token."""
        found = FRACTION.match(self.at(place))
        if found is None:
            raise ConfigError(f"{self.at(place)}: expected a number")
        return float(found[0])

    def boolean(self, place: int) -> bool:
        if self.at(place) not in ("True", "False"):
            raise ConfigError(f"{self.at(place)}: expected True or False")
        return self.at(place) == "True"


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _bytes(megabytes: int) -> int:
    return min(megabytes, UNLIMITED // MIB) * MIB


def _skip(tokens: Tokens, place: int) -> int:
    if tokens.at(place) == "[":
        while tokens.at(place) != "]":
            place += 1
    return place


def _check_number(tokens: Tokens, place: int) -> int:
    tokens.number(place)
    return place


def _check_positive_number(tokens: Tokens, place: int) -> int:
    if tokens.number(place) == 0:
        raise ConfigError("0: expected more than 0")
    return place


def _check_boolean(tokens: Tokens, place: int) -> int:
    tokens.boolean(place)
    return place


def _check_backend(tokens: Tokens, place: int) -> int:
    if tokens.at(place) not in BACKENDS:
        raise ConfigError(f"backend:{tokens.at(place)}: expected native or cudaMallocAsync")
    return place


def _check_register_threads(tokens: Tokens, place: int) -> int:
    threads = tokens.number(place)
    if not is_power_of_two(threads) or threads > MOST_REGISTER_THREADS:
        raise ConfigError(f"pinned_num_register_threads:{threads}: expected a power of 2 to 128")
    return place
