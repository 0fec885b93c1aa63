"""examples/train_mixed_precision.py, run as a program, and its functions."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from modes import openreg_only

pytestmark = openreg_only("the examples, which say openreg")

EXAMPLES = Path(__file__).parents[3] / "examples"
SCRIPT = EXAMPLES / "train_mixed_precision.py"


@pytest.fixture(scope="module")
def training(own_group, tmp_path_factory):
    """Return the training's result and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("training")
    result = subprocess.run(
        [sys.executable, SCRIPT], cwd=folder, env=own_group(), capture_output=True, text=True
    )
    return result, folder


def test_lower_precisions_reach_the_accuracy_of_float32(training):
    result, _ = training
    assert result.returncode == 0, result.stderr
    row = r"^(\w+) +([\d.]+) % +[\d.]+ +(-|2\^\d+) +(-|\d+)$"
    rows = re.findall(row, result.stdout, re.MULTILINE)
    assert [name for name, *_ in rows] == ["float32", "float16", "bfloat16"]
    in_float32, *others = [float(accuracy) for _, accuracy, *_ in rows]
    assert in_float32 >= 97
    assert min(others) >= in_float32 - 0.5
    assert [scale == "-" for _, _, scale, _ in rows] == [True, False, True]


def test_scale_is_searched_for(training):
    result, _ = training
    (skipped,) = re.findall(r"^float16 .* 2\^\d+ +(\d+)$", result.stdout, re.MULTILINE)
    assert int(skipped) > 0


def test_training_leaves_a_picture(training):
    _, folder = training
    picture = (folder / "openreg-precision.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) > 10_000  # a blank page of this size takes less


@pytest.mark.parametrize(
    ("in_float16", "in_bfloat16", "sentence"),
    [
        (98.5, 99.5, None),
        (
            98.25,
            99.0,
            "98.25 % of the test images were recognised in float16; "
            "expected at least 98.50 %, half a point less than in float32",
        ),
        (
            99.0,
            90.0,
            "90.00 % of the test images were recognised in bfloat16; "
            "expected at least 98.50 %, half a point less than in float32",
        ),
    ],
)
def test_problems_are_reported(monkeypatch, in_float16, in_bfloat16, sentence):
    monkeypatch.syspath_prepend(EXAMPLES)
    example = runpy.run_path(str(SCRIPT))

    def run_of(dtype, accuracy):
        return example["Run"](dtype, [0.5], [], [], accuracy)

    runs = [
        run_of(torch.float32, 99.0),
        run_of(torch.float16, in_float16),
        run_of(torch.bfloat16, in_bfloat16),
    ]
    assert example["complaint"](runs) == sentence
