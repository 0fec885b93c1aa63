"""With memory plans, launches take and free the device memory that CUDA's operators do."""

import os
import re

import pytest
import torch
from peaks import counters, planned, taken_by
from torch_openreg.plans import launches
from torch_openreg.plans.ask import report

from device import DEVICE, module

aten = torch.ops.aten


SOURCES = ["planner", "builtin"]


@pytest.fixture(autouse=True, params=SOURCES)
def source(request):
    if request.param == "planner":
        request.getfixturevalue("build")
    launches.use(request.param)
    yield request.param
    launches.use("none")


def new_size(number, source):
    """Return another size for each test and source, because a launch asks once for a signature."""
    return number + 10 * SOURCES.index(source)


def numbers(*sizes, dtype=torch.float32):
    return torch.rand(sizes, device=DEVICE).to(dtype)


def indices(count, below):
    return torch.arange(count, device=DEVICE) % below


# Operators whose CUDA kernels take memory: the operator, and arguments of a size that depends on n.
CALLS = {
    "sort": (aten.sort.default, lambda n: [numbers(70_000 + n)]),
    "sort of rows": (aten.sort.default, lambda n: [numbers(60 + n, 100)]),
    "cumsum": (aten.cumsum.default, lambda n: [numbers(70_000 + n), 0]),
    "sum": (aten.sum.default, lambda n: [numbers(700_000 + n)]),
    "median": (aten.median.default, lambda n: [numbers(700 + n)]),
    "bfloat16": (aten.sort.default, lambda n: [numbers(70_000 + n, dtype=torch.bfloat16)]),
    "convolution": (
        aten.convolution.default,
        lambda n: [
            *(numbers(2, 8, 30 + n, 16), numbers(8, 8, 3, 3), None),
            *([1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        ],
    ),
    "gradient of an embedding": (
        aten.embedding_dense_backward.default,
        lambda n: [numbers(4000 + n, 64), indices(4000 + n, 900), 1000, -1, False],
    ),
    "in place": (
        aten.index_put_.default,
        lambda n: [numbers(1000, 8), [indices(5000 + n, 900)], numbers(5000 + n, 8), True],
    ),
}
EVERY_CALL = pytest.mark.parametrize("name", CALLS)


@EVERY_CALL
def test_inline_launches_take_what_the_plan_says(name, source):
    operator, make = CALLS[name]
    with torch.no_grad():
        arguments = make(new_size(1, source))
        expected = planned(operator, arguments, source)
        assert taken_by(lambda: operator(*arguments)) == expected  # learns
        assert taken_by(lambda: operator(*arguments)) == expected


@EVERY_CALL
def test_queued_launches_take_what_the_plan_says(name, source, close_gate):
    operator, make = CALLS[name]
    with torch.no_grad():
        arguments = make(new_size(2, source))
        expected = planned(operator, arguments, source)
        operator(*arguments)
        module.synchronize()
        counts, _ = expected
        before = counters()
        gate = close_gate()
        operator(*arguments)
        after = counters()
        assert not module.current_stream().query()
        gate.open()
        found = [late - early for late, early in zip(after, before, strict=True)]
        results = counts[0] - counts[1]
        assert found[0] == counts[0]
        assert found[1] == counts[1] + results  # the results were dropped


@EVERY_CALL
def test_captured_launches_take_what_the_plan_says(name, source):
    operator, make = CALLS[name]
    with torch.no_grad():
        arguments = make(new_size(3, source))
        counts, _ = planned(operator, arguments, source)
        graph = module.CUDAGraph() if hasattr(module, "CUDAGraph") else torch.accelerator.Graph()
        module.synchronize()
        with module.graph(graph):
            before = counters()
            result = operator(*arguments)
            after = counters()
        assert [late - early for late, early in zip(after, before, strict=True)] == counts
        graph.replay()
        module.synchronize()
        del result


@EVERY_CALL
def test_values_are_those_of_the_cpu(name, source):
    operator, make = CALLS[name]
    with torch.no_grad():
        for _ in range(2):
            arguments = make(new_size(4, source))
            on_host = [
                each.cpu()
                if isinstance(each, torch.Tensor)
                else [part.cpu() for part in each]
                if isinstance(each, list) and isinstance(each[0], torch.Tensor)
                else each
                for each in arguments
            ]
            if operator is aten.sort.default:  # equal elements keep their order, as on CUDA
                expected = aten.sort.stable(*on_host, stable=True)
            else:
                expected = operator(*on_host)
            torch.testing.assert_close(operator(*arguments), expected, check_device=False)


def test_without_plans_an_operator_takes_its_results_only(source):
    launches.use("none")
    x = numbers(70_000 + new_size(5, source))
    assert taken_by(lambda: aten.sort.default(x))[0][:2] == [2, 0]


# ---- counts by source ----------------------------------------------------------------------------


def counted_by(work):
    """Return how many launches of each source the work makes."""
    before = report()["launches"]
    work()
    module.synchronize()
    after = report()["launches"]
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def test_launches_are_counted_by_the_source_of_their_plan(source, close_gate):
    x = numbers(70_000 + new_size(6, source))

    def sort_three_times():
        x.sort()
        module.synchronize()
        x.sort()
        gate = close_gate()
        x.sort()
        gate.open()

    assert counted_by(sort_three_times) == {source: 3}


def test_a_launch_in_a_graph_is_counted_when_it_is_captured(source):
    x = numbers(70_000 + new_size(7, source))
    graph = module.CUDAGraph() if hasattr(module, "CUDAGraph") else torch.accelerator.Graph()
    module.synchronize()

    def capture():
        with module.graph(graph):
            x.sort()

    assert counted_by(capture) == {source: 1}
    assert counted_by(graph.replay) == {}


def test_launches_that_need_or_have_no_plan_are_counted_apart(source):
    x = numbers(new_size(8, source))
    mask = x > 0
    # A queued launch asks the planner all the same.
    is_asked = source == "planner" and os.environ.get("QUEUE_EVERYTHING") == "1"
    expected = "planner" if is_asked else "elementwise"
    assert counted_by(lambda: (x + 1, x.view(-1))) == {expected: 1}
    assert counted_by(lambda: x[mask]) == {"none": 1}


def test_nothing_is_counted_without_plans(source):
    x = numbers(70_000 + new_size(9, source))
    launches.use("none")
    assert counted_by(lambda: (x.sort(), x + 1)) == {}


def test_the_summary_ends_with_the_launches_of_the_device(source):
    module.synchronize()
    table, _, line = module.memory_summary(0).removesuffix("\n").rpartition("\n")
    assert re.fullmatch(
        r"Memory plans of \d+ launches: planner \d+, builtin \d+, elementwise \d+, none \d+", line
    )
    counts = report()["launches"]  # of all devices; this test file uses only one
    assert [int(each) for each in re.findall(r"\d+", line)] == [
        sum(counts.values()),
        *counts.values(),
    ]
    launches.use("none")
    assert module.memory_summary(0) == table + "\n"
