"""The comparison itself: the model agrees with itself, and a wrong player is detected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from compare import (
    Player,
    compare_answers,
    follows_protocol,
    play,
    read_trace,
    shrink,
    with_snapshots,
    write_trace,
)
from policy_device import GapPlacement
from policy_session import Session
from traces import Trace, generate

PLAYER_COMMAND = [sys.executable, str(Path(__file__).with_name("player.py"))]

# This player is the model, except that it merges no block with the one behind it.
WRONG_PLAYER = """
import sys
sys.path.insert(0, {folder!r})
import policy
from policy_blocks import try_merge
policy.try_merge = lambda block, other: 0 if other is block.next else try_merge(block, other)
import player
player.main()
"""


@pytest.mark.parametrize("place", ["lowest", "highest", "random"])
def test_model_agrees_with_itself_wherever_segments_lie(place):
    for seed in range(1, 13):
        trace = with_snapshots(generate(seed, 1000))
        assert (
            play(Player([*PLAYER_COMMAND, "--place", place]), trace, timeout=60, check=50) is None
        )


def test_same_seed_writes_the_same_trace():
    assert generate(7, 500) == generate(7, 500)
    assert generate(7, 500) != generate(8, 500)


def test_wrong_player_is_found_and_the_trace_shrunk(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(WRONG_PLAYER.format(folder=str(Path(__file__).parent)))
    player = Player([sys.executable, str(script)])
    trace = generate(1, 300)
    difference = play(player, trace, timeout=60, check=0)
    assert difference is not None
    small = shrink(player, trace, difference, timeout=20)
    assert 2 <= len(small.commands) <= 10
    path = tmp_path / "small.trace"
    write_trace(path, small)
    assert read_trace(path) == small
    assert play(player, small, timeout=60, check=0) is not None


@pytest.mark.parametrize(
    ("commands", "follows"),
    [
        ("hold 1; go 1; hold 1", True),
        ("hold 1; hold 1", False),
        ("pool_create 1 0 0; pool_begin 1; pool_end 1; pool_destroy 1; pool_empty 1", True),
        ("pool_begin 1", False),
        ("pool_create 1 0 0; pool_create 2 0 0; pool_begin 1; pool_begin 2", False),
        ("pool_create 1 0 0; pool_end 1", False),
        ("pool_create 1 0 0; pool_begin 1; pool_destroy 1", False),
        ("pool_create 1 0 0; pool_destroy 1; pool_begin 1", False),
        ("pool_create 1 0 0; pool_empty 1", False),
    ],
)
def test_shortened_trace_must_follow_the_protocol(commands, follows):
    assert follows_protocol(commands.split("; ")) == follows


def test_random_traces_follow_the_protocol():
    for seed in range(1, 30):
        assert follows_protocol(generate(seed, 1000).commands)


def test_player_that_ends_early_is_a_difference():
    difference = play(Player([sys.executable, "-c", "pass"]), Trace(1 << 30, "", ["empty"]), 60, 0)
    assert difference is not None
    assert "no answer" in difference.values[0]


def test_differences_are_named():
    session = Session(1 << 30, "", GapPlacement())
    answer = session.answer("alloc 1 4 0")
    values = answer.split(";")[2].split()
    values[1] = "9"
    wrong = ";".join(["block 512 512", "", " ".join(values)])
    found = compare_answers(wrong, answer, known=True)
    assert [line.split(":")[0] for line in found] == ["result", "segments", "allocation.all.peak"]
