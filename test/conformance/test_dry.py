"""Dry runs agree with real runs. The first calls of some operators, and what the comparison finds.

The operators have different ways to their results: kernels of openreg, meta functions of PyTorch
in C++ and Python, memory plans, views, results that share memory, and values that decide.
"""

import pytest

from . import dry
from .plan import Row

OPERATORS = (
    "add,cumsum,expand,index_put,linalg.svd,nn.functional.conv2d,nn.functional.embedding,nonzero,"
    "sort,split"
)


@pytest.mark.parametrize("more", [[], ["--bytes", "1200000"]], ids=["unknown", "large"])
def test_operators_are_in_a_dry_run_as_in_a_real_run(more, capsys):
    options = ["--only", OPERATORS, "--dtype", "float32", "--limit", "2", "--jobs", "1"]
    assert dry.main([*options, *more]) == 0, capsys.readouterr().out
    assert int(capsys.readouterr().out.split(" same")[0]) >= 20


def observed(**changes):
    result = {"shape": ["2"], "strides": [1], "memory": 0}
    found = {"error": None, "results": [result], "changed": [], "events": ["alloc 8"]}
    return found | {"reads": 0, "elements": 5000} | changes


def outcomes(real, dry_run):
    row = Row("forward", "add", "float32")
    rows = [dry.Observed(*vars(row).values(), calls=[("call", each)]) for each in (real, dry_run)]
    counted, groups = dry.compare(rows[:1], rows[1:])
    return list(counted), [key[0] for key in groups]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("error", ["RuntimeError", "no"]),
        ("results", [{"shape": ["3"], "strides": [1], "memory": 0}]),
        ("changed", [["5", "6"]]),
        ("events", ["alloc 8", "alloc 4"]),
    ],
)
def test_a_difference_is_found_unless_the_dry_run_says_why(kind, value):
    assert outcomes(observed(), observed()) == (["same"], [])
    assert outcomes(observed(), observed(**{kind: value})) == (["different"], [kind])
    read = observed(**{kind: value}, reads=1)
    assert outcomes(observed(), read) == (["reads unknown values"], [])


def test_reasons_are_as_narrow_as_they_say():
    several = [{"shape": ["3"], "strides": [1], "memory": 0}]
    strided = [{"shape": ["2"], "strides": [7], "memory": 0}]
    assert outcomes(observed(), observed(results=strided))[1] == []
    assert outcomes(observed(), observed(results=several))[1] == ["results"]
    small = observed(elements=10)
    assert outcomes(small, observed(events=["alloc 8", "alloc 4"]))[1] == []
    assert outcomes(small, observed(events=["alloc 4"]))[1] == ["events"]
