"""Plans of the planner are those that were measured with PyTorch's CUDA build: measured.txt."""

import collections
import pathlib
import re

import pytest
from torch_openreg.plans.client import DEFAULT_SETTINGS, PlannedOutput

LINES = [
    [part.strip() for part in line.split("|")]
    for line in (pathlib.Path(__file__).parent / "measured.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
WITHOUT_GRADIENTS = (False, *DEFAULT_SETTINGS[1:])


def _tensors(outputs):
    for output in outputs:
        if isinstance(output, list):
            yield from _tensors(output)
        elif isinstance(output, PlannedOutput):
            yield output


@pytest.mark.parametrize(
    "operator, arguments, kept, blocks",
    LINES,
    ids=[f"{line[0][6:]}-{line[1][:40]}" for line in LINES],
)
def test_blocks_are_those_that_were_measured(ask, operator, arguments, kept, blocks):
    plan = ask(operator, arguments, WITHOUT_GRADIENTS)
    assert plan is not None and plan.error is None
    results = list(_tensors(plan.outputs))
    results = results if kept == "all" else results[: int(kept)]
    owned = {result.number for result in results if result.where == "block"}
    taken = [size for size in plan.events if size > 0]
    found = collections.Counter(size for number, size in enumerate(taken, 1) if number not in owned)
    expected = collections.Counter()
    for count, size in re.findall(r"(?:(\d+)x)?(\d+)", blocks):
        expected[int(size)] += int(count or 1)
    assert found == expected


@pytest.mark.parametrize("line", LINES[::8], ids=lambda line: line[0])
def test_the_same_question_has_the_same_answer(ask, line):
    operator, arguments, _, _ = line
    assert ask(operator, arguments) == ask(operator, arguments)
