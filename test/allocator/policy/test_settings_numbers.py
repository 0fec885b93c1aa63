"""Settings strings as numbers: the settings after each string, not what the string names."""

from __future__ import annotations

from policy_config import MIB, Config
from settings_numbers import as_numbers, with_numbers
from traces import Trace

NO_DIVISIONS = ",".join(["0"] * 16)


def test_numbers_come_in_their_order():
    config = Config(
        "max_split_size_mb:40,max_non_split_rounding_mb:50,large_segment_size_mb:30,"
        "roundup_power2_divisions:[2:4,>:8],garbage_collection_threshold:0.25,"
        "per_process_memory_fraction:0.5,expandable_segments:True,throw_on_cudamalloc_oom:True"
    )
    sizes = f"{40 * MIB},{50 * MIB},{30 * MIB}"
    assert as_numbers(config) == f"{sizes},4,4{',8' * 14},0.25,0.5,1,1"


def test_settings_of_a_trace_add_up():
    commands = ["empty", "settings max_split_size_mb:20", "settings", "settings no_such_key:1"]
    trace = with_numbers(Trace(64 * MIB, "expandable_segments:True", commands))
    kept = f"{20 * MIB},{20 * MIB},{NO_DIVISIONS},0.0,1.0,1,0"
    unlimited = (1 << 64) - 1
    assert trace.settings == f"{unlimited},{kept}"
    assert trace.commands == [
        "empty",
        f"settings {20 * MIB},{kept}",
        f"settings {unlimited},{kept}",
        f"settings {unlimited},{kept}",
    ]
