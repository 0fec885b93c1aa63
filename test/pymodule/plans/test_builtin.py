"""Built-in plans are the planner's: around every threshold of their formulas, and as recorded.

``recorded.txt`` has answers of the planner, for environments without a CUDA build. To record them
again: ``python record_plans.py`` in this folder.
"""

import grids
import measured
import pytest
from record_plans import DEVICES, LINES, answer_of, fresh_blocks
from torch_openreg._releases import RELEASE
from torch_openreg.plans import builtin
from torch_openreg.plans.client import DEFAULT_SETTINGS, Client, Plan
from torch_openreg.plans.text import parse_call

WITHOUT_GRADIENTS = (False, *DEFAULT_SETTINGS[1:])
DETERMINISTIC = (False, True, *DEFAULT_SETTINGS[2:])

# The smallest part of a family's calls that must have a built-in plan, if not all. Some empty
# tensors have none, and no sorts of keys of 8 and 16 bits before compute capability 9.0.
LEAST_PLANS = {
    **{"reductions": 0.98, "sorts": 0.75, "scans": 0.85, "softmaxes": 0.9},
    **{"convolutions": 0.98, "normalizations": 0.9},
}


if RELEASE < (2, 13):  # its sorts take other amounts
    FAMILIES = [name for name in grids.FAMILIES if name not in ("embeddings", "indexing")]
else:
    FAMILIES = list(grids.FAMILIES)


def compute(operator, arguments, settings=WITHOUT_GRADIENTS, profile="h100"):
    given, named = parse_call(arguments.split())
    return builtin.compute(operator, given, named, settings, DEVICES[profile])


@pytest.fixture(scope="module")
def planner(build):
    """Yield a client for all profiles."""
    made = Client(list(DEVICES))
    yield made
    made.end()


@pytest.mark.parametrize("profile", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_plans_are_those_of_the_planner(planner, family, profile):
    count = known = 0
    for operator, arguments in grids.FAMILIES[family]():
        given, named = parse_call(arguments.split())
        expected = planner.ask((operator, given, named, WITHOUT_GRADIENTS, profile))
        if expected is None or expected.error is not None:
            continue
        count += 1
        found = compute(operator, arguments, profile=profile)
        if found is None:
            continue
        known += 1
        assert answer_of(found) == answer_of(expected), f"{operator} {arguments}"
    assert known >= count * LEAST_PLANS.get(family, 1)


@pytest.mark.parametrize(
    "family", [name for name in ("attention", "scans", "indexing") if name in FAMILIES]
)
def test_deterministic_plans_are_those_of_the_planner(planner, family):
    known = 0
    for operator, arguments in grids.FAMILIES[family]():
        given, named = parse_call(arguments.split())
        found = compute(operator, arguments, DETERMINISTIC)
        expected = planner.ask((operator, given, named, DETERMINISTIC, "h100"))
        if found is not None and expected is not None and expected.error is None:
            known += 1
            assert answer_of(found) == answer_of(expected), f"{operator} {arguments}"
    assert known > 0 or family == "indexing"


@pytest.mark.skipif(RELEASE != (2, 13), reason="recorded with 2.13")
@pytest.mark.parametrize(
    "line", LINES, ids=[f"{line[1][6:]}-{line[2][:40]}-{line[0]}" for line in LINES]
)
def test_plans_are_those_that_were_recorded(line):
    profile, operator, arguments, events, results = line
    plan = compute(operator, arguments, profile=profile)
    assert plan is not None
    assert answer_of(plan) == (
        tuple(map(int, events.split())),
        [int(each) for each in results.split()],
    )


# What the formulas leave out.
NO_FORMULA = ("aten::cross_entropy_loss", "aten::_scaled_dot_product_attention_math")
# Operators that take their results only, in order, need none.
RESULTS_ONLY = ("aten::_fused_adamw_",)


@pytest.mark.parametrize(
    "operator, arguments, kept, blocks",
    measured.LINES,
    ids=measured.IDS,
)
def test_blocks_are_those_that_were_measured(operator, arguments, kept, blocks):
    plan = compute(operator, arguments)
    if plan is None:
        assert operator.startswith((*NO_FORMULA, *RESULTS_ONLY))
        return
    results = fresh_blocks(plan.outputs)
    owned = set(results if kept == "all" else results[: int(kept)])
    assert measured.sizes_beside(plan, owned) == measured.expected_sizes(blocks)


def test_what_no_formula_expects_has_no_plan():
    device = DEVICES["h100"]
    assert builtin.plan("aten::add.Tensor", [], {}, WITHOUT_GRADIENTS, device) is None
    assert builtin.plan("aten::sort", ["text"], {}, WITHOUT_GRADIENTS, device) is None
    assert compute("aten::sort", "bfloat16[70000]", profile="a100") is None


def test_a_plan_has_the_fresh_results():
    plan = compute("aten::topk", "float32[9,100] 5")
    assert isinstance(plan, Plan)
    assert [(each.dtype, each.sizes, each.storage_bytes) for each in plan.outputs] == [
        ("float32", (9, 5), 180),
        ("int64", (9, 5), 360),
    ]
