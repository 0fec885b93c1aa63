"""Plans of the planner are those that were measured with PyTorch's CUDA build: measured.txt."""

import pytest
from measured import IDS, LINES, expected_sizes, sizes_beside
from torch_openreg.plans.client import DEFAULT_SETTINGS, PlannedOutput

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
    ids=IDS,
)
def test_blocks_are_those_that_were_measured(ask, operator, arguments, kept, blocks):
    plan = ask(operator, arguments, WITHOUT_GRADIENTS)
    assert plan is not None and plan.error is None
    results = list(_tensors(plan.outputs))
    results = results if kept == "all" else results[: int(kept)]
    owned = {result.number for result in results if result.where == "block"}
    assert sizes_beside(plan, owned) == expected_sizes(blocks)


@pytest.mark.parametrize("line", LINES[::8], ids=lambda line: line[0])
def test_the_same_question_has_the_same_answer(ask, line):
    operator, arguments, _, _ = line
    assert ask(operator, arguments) == ask(operator, arguments)
