"""Settings as comma-separated numbers, for players that cannot read settings strings.

The order: max_split_size, max_non_split_rounding, large_segment_size, the 16 roundup divisions,
garbage_collection_threshold, per_process_memory_fraction, expandable_segments and
throw_on_cudamalloc_oom; sizes in bytes, booleans 0 or 1.
"""

from __future__ import annotations

from contextlib import suppress

from policy_config import Config, ConfigError
from traces import Trace


def as_numbers(config: Config) -> str:
    numbers = [
        config.max_split_size,
        config.max_non_split_rounding,
        config.large_segment_size,
        *config.roundup_divisions,
        config.garbage_collection_threshold,
        config.per_process_memory_fraction,
        int(config.expandable_segments),
        int(config.throw_on_cudamalloc_oom),
    ]
    return ",".join(map(str, numbers))


def with_numbers(trace: Trace) -> Trace:
    """Return the same trace, with each settings string replaced by the settings after it.

    A refused string becomes the part of it that takes effect. A player cannot tell that it was
    refused.
    """
    config = Config(trace.settings)
    first = as_numbers(config)
    commands = []
    for command in trace.commands:
        name, _, settings = command.partition(" ")
        if name == "settings":
            with suppress(ConfigError):
                config.parse(settings)
            command = f"settings {as_numbers(config)}"
        commands.append(command)
    return Trace(trace.capacity, first, commands)
