"""Short traces, each of which shows one behaviour of CUDA's allocator that is easy to get wrong.

Sizes are in bytes, or in MiB with an M behind them.
"""

from __future__ import annotations

import re

from policy_config import MIB
from traces import Trace

_POOL_WITH_40_MIB = "pool_create 1 1 0; pool_begin 1; alloc 1 40M 0; pool_end 1; free 1"
_SIZES_OF_DIVISIONS = "alloc 1 1100000 0; alloc 2 65M 0; alloc 3 260M 0; alloc 4 530M 0"

# name: (capacity in MiB, settings, commands)
_TRACES: dict[str, tuple[int, str, str]] = {
    "older-segment-first": (
        200,
        "",
        "alloc 1 12M 0; alloc 2 12M 0; free 1; empty; alloc 4 12M 0; free 2; free 4; alloc 5 12M 0",
    ),
    "limit-is-rounded": (
        64,
        "",
        "fraction 0.7; alloc 1 60M 0; fraction 0.3; alloc 2 60M 0; fraction 0.9; alloc 3 60M 0; "
        "fraction 0.4999999999; alloc 4 32M 0",
    ),
    "limit-rounds-halves-up": (
        2,
        "",
        "fraction 0.0000002384185791015625; alloc 1 4 0; fraction 0.0000011920928955078125; "
        "alloc 2 4 0",
    ),
    "use-on-oom-before-give-back": (
        64,
        "",
        f"{_POOL_WITH_40_MIB}; alloc 2 12M 0; free 2; alloc 3 38M 0; snapshot",
    ),
    "use-on-oom-before-oversize": (
        96,
        "max_split_size_mb:20",
        f"{_POOL_WITH_40_MIB}; alloc 2 50M 0; free 2; alloc 3 26M 0; snapshot",
    ),
    "use-on-oom-of-one-stream": (64, "", f"{_POOL_WITH_40_MIB}; alloc 3 38M 1; snapshot"),
    "use-on-oom-not-in-a-begun-pool": (
        64,
        "",
        f"{_POOL_WITH_40_MIB}; pool_create 2 0 0; pool_begin 2; alloc 3 38M 0",
    ),
    "use-on-oom-not-of-a-destroyed-pool": (
        64,
        "",
        f"{_POOL_WITH_40_MIB}; pool_destroy 1; alloc 3 38M 0; snapshot",
    ),
    "use-on-oom-order-of-two": (
        64,
        "",
        "pool_create 1 1 0; pool_create 2 1 0; pool_begin 1; alloc 1 30M 0; pool_end 1; "
        "pool_begin 2; alloc 2 30M 0; pool_end 2; free 1; free 2; alloc 3 30M 0; alloc 4 30M 0",
    ),
    "non-split-rounding-is-a-large-segment": (
        96,
        "large_segment_size_mb:12,max_split_size_mb:14",
        "alloc 7 44M 0; free 7; alloc 9 26M 0",
    ),
    "non-split-rounding-rounded-up": (
        96,
        "large_segment_size_mb:12,max_split_size_mb:14,roundup_power2_divisions:8",
        "alloc 7 42196869 0; free 7; alloc 9 25716224 0",
    ),
    "non-split-rounding-put-back": (
        128,
        "max_split_size_mb:20,max_non_split_rounding_mb:40",
        "settings max_split_size_mb:20; alloc 1 50M 0; free 1; alloc 2 30M 0",
    ),
    "begun-pool-empties": (64, "", "pool_create 1 0 0; pool_begin 1; empty"),
    "begun-pool-retries": (64, "", "pool_create 1 0 0; pool_begin 1; alloc 22 129629445 0"),
    "begun-pool-looks-at-events": (
        64,
        "",
        "alloc 1 4 0; record 1 1; free 1; pool_create 1 0 0; pool_begin 1; alloc 2 4 0",
    ),
    "begun-pool-makes-events": (
        64,
        "",
        "alloc 1 4 0; record 1 1; pool_create 1 0 0; pool_begin 1; free 1; alloc 2 4 0",
    ),
    "max-split-statistic-stays": (64, "", "settings max_split_size_mb:25; alloc 1 30M 0"),
    "private-pools-in-the-sentence": (
        64,
        "",
        "pool_create 1 0 0; pool_begin 1; alloc 1 12M 0; pool_end 1; free 1; alloc 2 60M 0",
    ),
    "fraction-key-at-run-time": (
        64,
        "",
        "settings per_process_memory_fraction:0.5; alloc 1 40M 0; alloc 2 40M 0",
    ),
    "fraction-key-at-start": (64, "per_process_memory_fraction:0.5", "alloc 1 40M 0"),
    "throw-rejects-at-once": (
        64,
        "throw_on_cudamalloc_oom:True",
        "alloc 1 40M 0; free 1; alloc 2 60M 0; alloc 3 4 1; alloc 4 22M 0; alloc 5 4 0",
    ),
    "throw-goes-by-its-key": (
        64,
        "throw_on_cudamalloc_oom:True",
        "settings per_process_memory_fraction:0.5; alloc 1 30M 0; alloc 2 4M 0; fraction 0.5; "
        "alloc 3 4M 0; fraction 1.0; alloc 4 4M 0; settings throw_on_cudamalloc_oom:False; "
        "alloc 5 4M 0",
    ),
    "throw-key-is-cut": (
        64,
        "",
        "settings throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.312499993; "
        "alloc 1 4M 0; settings per_process_memory_fraction:0.3125; alloc 2 4M 0",
    ),
    "fraction-key-stays": (
        64,
        "throw_on_cudamalloc_oom:True",
        "settings per_process_memory_fraction:0.5; settings; alloc 1 40M 0",
    ),
    "throw-before-use-on-oom": (
        64,
        "throw_on_cudamalloc_oom:True",
        f"{_POOL_WITH_40_MIB}; alloc 3 38M 0",
    ),
    "throw-stays": (
        64,
        "throw_on_cudamalloc_oom:True",
        "settings max_split_size_mb:20; alloc 1 70M 0",
    ),
    "throw-of-expandable": (
        64,
        "throw_on_cudamalloc_oom:True,expandable_segments:True",
        "alloc 1 40M 0; alloc 2 30M 0; alloc 3 4M 0; alloc 4 4M 0; free 1; alloc 5 50M 0",
    ),
    "no-split": (
        128,
        "",
        "pool_create 1 0 1; pool_begin 1; alloc 1 4 0; alloc 2 3M 0; alloc 3 12897484 0; snapshot",
    ),
    "no-split-expandable": (
        128,
        "expandable_segments:True",
        "pool_create 1 0 1; pool_begin 1; alloc 1 12M 0; alloc 2 4 0; alloc 3 12M 0; free 1; "
        "free 3; alloc 4 2M 0; snapshot",
    ),
    "destroyed-pool": (
        64,
        "",
        "pool_create 1 0 0; pool_begin 1; alloc 1 4 0; alloc 2 12M 0; pool_end 1; pool_empty 1; "
        "free 2; pool_empty 1; pool_destroy 1; pool_empty 1; snapshot; free 1; snapshot; empty; "
        "pool_empty 1",
    ),
    "pool-empty-waits-for-its-own-events": (
        64,
        "",
        "alloc 1 4 0; pool_create 1 0 0; pool_begin 1; alloc 2 4 0; alloc 3 12M 0; pool_end 1; "
        "record 1 1; record 2 1; hold 1; free 1; free 2; pool_destroy 1; pool_empty 1; snapshot",
    ),
    "garbage-collection-at-the-threshold": (
        200,
        "garbage_collection_threshold:0.5",
        "fraction 0.5; alloc 1 50M 0; free 1; alloc 2 4 0; free 2; empty; alloc 1 50M 0; free 1; "
        "fraction 0.499999995; alloc 3 4 1",
    ),
    "expandable-on-splits-ordinary-blocks": (
        128,
        "",
        "alloc 1 12M 0; free 1; settings expandable_segments:True; alloc 2 12058624 0; snapshot",
    ),
    "refused-settings-are-partly-in-force": (
        256,
        "",
        "alloc 1 30M 0; free 1; settings max_split_size_mb:26,nonsense:1; alloc 2 4M 0; snapshot",
    ),
    "refused-settings-put-back": (
        256,
        "max_split_size_mb:26",
        "alloc 1 30M 0; free 1; settings max_split_size_mb:19; alloc 2 4M 0; snapshot",
    ),
    "refused-cuda-key-after-common-ones": (
        256,
        "",
        "settings expandable_segments:True,per_process_memory_fraction:2; alloc 1 4M 0",
    ),
    "refused-common-key-before-cuda-ones": (
        64,
        "",
        "settings throw_on_cudamalloc_oom:True,max_split_size_mb:3; alloc 1 70M 0",
    ),
    "large-segment-size-anywhere": (
        128,
        "",
        "settings max_split_size_mb:32,large_segment_size_mb:32; alloc 1 4M 0; "
        "settings max_split_size_mb:20,large_segment_size_mb:24; alloc 2 4M 1",
    ),
    "junk-behind-a-number": (
        128,
        "large_segment_size_mb:21.7,max_split_size_mb:25x",
        "alloc 1 4M 0",
    ),
    "divisions-behind-the-last-named": (
        1500,
        "roundup_power2_divisions:[>:8]",
        _SIZES_OF_DIVISIONS,
    ),
    "divisions-beyond-the-last-interval": (
        1500,
        "roundup_power2_divisions:[131072:2]",
        _SIZES_OF_DIVISIONS,
    ),
    "divisions-in-falling-order": (
        1500,
        "roundup_power2_divisions:[1024:8,256:4]",
        _SIZES_OF_DIVISIONS,
    ),
    "divisions-overridden": (
        1500,
        "roundup_power2_divisions:[64:2,>:4,512:8]",
        _SIZES_OF_DIVISIONS,
    ),
    "divisions-without-a-colon": (
        1500,
        "",
        f"settings roundup_power2_divisions:[64,2]; {_SIZES_OF_DIVISIONS}",
    ),
    "divisions-with-junk": (1500, "roundup_power2_divisions:[64:2]x", _SIZES_OF_DIVISIONS),
    "divisions-refused-half-way": (
        1500,
        "",
        f"settings roundup_power2_divisions:[64:2,3:4]; {_SIZES_OF_DIVISIONS}",
    ),
    "expandable-range": (100, "expandable_segments:True", "alloc 1 4 0; alloc 2 4M 0"),
}


def _order_of_twelve() -> str:
    """Return a trace of twelve pools with use_on_oom, each with one free block."""
    numbers = range(1, 13)
    create = [f"pool_create {n} 1 0" for n in numbers]
    fill = [f"pool_begin {n}; alloc {n} 10M 0; pool_end {n}" for n in numbers]
    free = [f"free {n}" for n in numbers]
    take = [f"alloc {n + 12} 10M 0" for n in numbers]
    return "; ".join([*create, *fill, *free, *take])


_TRACES["use-on-oom-order-of-twelve"] = (120, "", _order_of_twelve())


def _trace(capacity: int, settings: str, text: str) -> Trace:
    text = re.sub(r"\b(\d+)M\b", lambda found: str(int(found[1]) * MIB), text)
    return Trace(capacity * MIB, settings, text.split("; "))


def minimal_traces() -> dict[str, Trace]:
    return {name: _trace(*parts) for name, parts in _TRACES.items()}
