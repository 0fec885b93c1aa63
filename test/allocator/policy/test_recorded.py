"""Compares the model with the answers that PyTorch's own CUDA caching allocator gave.

If POLICY_PLAYER holds the command of another player, that is compared too. POLICY_PLAYER_NUMBERS=1
gives it settings as numbers.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from record import PLACES, model_answers, player_answers
from recorded import RECORDED_TORCH, Recording, name_changes, read_recording
from settings_numbers import with_numbers

PATHS = sorted((Path(__file__).parent / "recorded").glob("*.txt.gz"))
PLAYER = shlex.split(os.environ.get("POLICY_PLAYER", ""))
TAKES_NUMBERS = os.environ.get("POLICY_PLAYER_NUMBERS", "") == "1"


def assert_same(recording: Recording, answers: list[str]) -> None:
    commands = recording.trace.commands
    for step, command in enumerate(commands, 1):
        if step > len(answers):
            pytest.fail(f"step {step}: {command}: no answer")
        expected, answer = recording.answers[step - 1], answers[step - 1]
        if command.startswith("settings ") and TAKES_NUMBERS:
            expected, answer = (text.partition(";")[2] for text in (expected, answer))
        if answer != expected:
            pytest.fail(
                f"step {step}: {command}\n"
                f"recorded: {name_changes(recording.answers[step - 1])}\n"
                f"answered: {name_changes(answers[step - 1])}"
            )
    assert len(answers) == len(commands)


def test_recordings_are_there_and_say_where_they_are_from():
    assert len(PATHS) > 90
    for path in PATHS:
        assert read_recording(path).origin.startswith(RECORDED_TORCH)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".txt.gz"))
@pytest.mark.parametrize("place", PLACES)
def test_model_gives_the_recorded_answers(path, place):
    recording = read_recording(path)
    assert_same(recording, model_answers(recording.trace, place))


@pytest.mark.skipif(not PLAYER, reason="POLICY_PLAYER names no player")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".txt.gz"))
def test_player_gives_the_recorded_answers(path):
    recording = read_recording(path)
    trace = with_numbers(recording.trace) if TAKES_NUMBERS else recording.trace
    assert_same(recording, player_answers(PLAYER, trace))
