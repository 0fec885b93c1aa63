"""Settings strings: what they set, what they reset, and what is refused."""

from __future__ import annotations

import pytest
from policy_config import MIB, UNLIMITED, Config, ConfigError


def test_defaults():
    config = Config()
    assert config.max_split_size == UNLIMITED
    assert config.max_non_split_rounding == config.large_segment_size == 20 * MIB
    assert config.garbage_collection_threshold == 0.0
    assert config.roundup_divisions == [0] * 16
    assert not config.expandable_segments


def test_blanks_and_a_last_comma_are_ignored():
    config = Config(" max_split_size_mb : 40 ,expandable_segments:True,")
    assert config.max_split_size == 40 * MIB
    assert config.expandable_segments


def test_run_time_setting_puts_back_what_it_does_not_name():
    config = Config(
        "max_split_size_mb:40,garbage_collection_threshold:0.5,roundup_power2_divisions:4,"
        "expandable_segments:True,large_segment_size_mb:32,max_non_split_rounding_mb:64,"
        "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5"
    )
    config.parse("")
    assert config.max_split_size == UNLIMITED
    assert config.garbage_collection_threshold == 0.0
    assert config.round_size(1025) == 1536
    assert config.expandable_segments
    assert config.large_segment_size == 32 * MIB
    assert config.max_non_split_rounding == 32 * MIB
    assert config.throw_on_cudamalloc_oom
    assert config.per_process_memory_fraction == 0.5


def test_max_non_split_rounding_is_by_default_a_large_segment():
    assert Config("large_segment_size_mb:12").max_non_split_rounding == 12 * MIB


def test_large_segment_size_counts_wherever_it_stands():
    config = Config("max_split_size_mb:12,large_segment_size_mb:12")
    assert config.max_split_size == config.large_segment_size == 12 * MIB


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("25x", 25), ("21.7", 21), ("+25", 25), ("-1", UNLIMITED // MIB)],
)
def test_number_is_what_its_text_begins_with(text, megabytes):
    assert Config(f"max_split_size_mb:{text}").max_split_size == megabytes * MIB


def test_fraction_is_what_its_text_begins_with():
    assert Config("garbage_collection_threshold:0.5x").garbage_collection_threshold == 0.5
    assert Config("garbage_collection_threshold:.5e-1").garbage_collection_threshold == 0.05


def test_last_of_repeated_keys_wins():
    config = Config("max_split_size_mb:25,max_split_size_mb:30")
    assert config.max_split_size == 30 * MIB


def test_separators_may_be_any():
    config = Config("max_split_size_mb,40:expandable_segments[True")
    assert config.max_split_size == 40 * MIB
    assert config.expandable_segments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", [8] * 16),
        ("[4:2]", [2] * 3 + [0] * 13),
        ("[1:2,8:4]", [2, 0, 0, 4] + [0] * 12),
        ("[256:1,512:2,>:4]", [1] * 9 + [2] + [4] * 6),
        ("[65536:8]", [8] * 16),
        ("[2:0,>:16]", [0, 0] + [16] * 14),
        ("[>:8]", [0] + [8] * 15),
        ("[64:2,>:4,512:8]", [2] * 7 + [4, 4, 8] + [4] * 6),
        ("[1024:8,256:4]", [8] * 8 + [4, 8, 8] + [0] * 5),
        ("[256,2]", [2] * 9 + [0] * 7),
        ("[256:2]x", [2] * 9 + [0] * 7),
        ("[256:2]]", [2] * 9 + [0] * 7),
        ("[]", [0] * 16),
    ],
)
def test_divisions(text, expected):
    assert Config(f"roundup_power2_divisions:{text}").roundup_divisions == expected


def refused(config: Config, settings: str) -> Config:
    with pytest.raises(ConfigError):
        config.parse(settings)
    return config


def test_refused_settings_are_in_force_up_to_the_mistake():
    config = refused(Config(), "max_split_size_mb:64,no_such_key:1,expandable_segments:True")
    assert config.max_split_size == 64 * MIB
    assert not config.expandable_segments
    assert refused(config, "max_split_size_mb:19").max_split_size == UNLIMITED
    refused(config, "roundup_power2_divisions:[2:4,3:2]")
    assert config.roundup_divisions == [4, 4] + [0] * 14


def test_cuda_keys_are_read_after_the_common_ones():
    config = refused(Config(), "throw_on_cudamalloc_oom:True,max_split_size_mb:3")
    assert not config.throw_on_cudamalloc_oom
    config = refused(config, "per_process_memory_fraction:2,max_split_size_mb:30")
    assert config.max_split_size == 30 * MIB


def test_large_segment_size_of_refused_settings_is_in_force():
    config = refused(Config(), "no_such_key:1,large_segment_size_mb:32")
    assert config.large_segment_size == config.max_non_split_rounding == 32 * MIB


@pytest.mark.parametrize(
    "settings",
    [
        "no_such_key:1",
        "max_split_size_mb:19",
        "max_split_size_mb:x",
        "max_non_split_rounding_mb:19",
        "max_split_size_mb:30,large_segment_size_mb:32",
        "large_segment_size_mb:10",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:x",
        "per_process_memory_fraction:1.1",
        "per_process_memory_fraction:-0.1",
        "expandable_segments:true",
        "release_lock_on_cudamalloc:1",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:[3:2]",
        "roundup_power2_divisions:[4:3]",
        "roundup_power2_divisions:[4:2",
        "roundup_power2_divisions:[4:2,",
        "roundup_power2_divisions:[4",
        "roundup_power2_divisions:[4:2;8:2]",
        "roundup_power2_divisions:-4",
        "roundup_power2_divisions:x",
        "max_split_size_mb:99999999999999999999999",
        "max_split_size_mb",
        "max_split_size_mb=25",
        "MAX_SPLIT_SIZE_MB:25",
        ":25",
        ",",
        ",max_split_size_mb:25",
        "max_split_size_mb:25,,expandable_segments:True",
        "garbage_collection_threshold:nan",
        "expandable_segments",
        "expandable_segments:",
        "expandable_segments:[True]",
        "expandable_segments:True:False",
        "backend:other",
        "pinned_num_register_threads:3",
        "pinned_num_register_threads:256",
        "pinned_max_cached_size_mb:x",
        "pinned_reserve_segment_size_mb:0",
    ],
)
def test_refused(settings):
    with pytest.raises(ConfigError):
        Config(settings)


def test_accepted_keys_without_effect_here():
    Config(
        "backend:native,release_lock_on_cudamalloc:True,"
        "graph_capture_record_stream_reuse:True,pinned_use_background_threads:True,"
        "pinned_use_cuda_host_register:False,pinned_num_register_threads:8,"
        "pinned_reserve_segment_size_mb:64,pinned_free_catch_all:True,max_split_size_mb:20"
    )
