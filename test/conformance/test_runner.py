"""The runner finds what it is there to find: each kind of difference, crashes, stale entries.

Functions that know which device they run on play the part of a wrong device.
"""

import os
import signal
from dataclasses import replace

import pytest
import torch

from . import expected, report
from .comparison import Rules, compare
from .inputs import DEVICE, HOST, Stay, move
from .plan import Row, Task, part_of, plan
from .runner import Runner
from .worker import run_task


def found(on_device, *arguments, on_host=lambda x: x, rules=None):
    """The difference between two functions of the arguments."""

    def function(given, device):
        return (on_device if device == DEVICE else on_host)(*given)

    return compare(function, arguments, rules or Rules())


def ones(*shape):
    return torch.ones(shape)


def test_equal_runs_have_no_difference():
    assert found(lambda x: x, ones(2, 3)) is None


def test_a_wrong_value_is_found():
    assert "1 of 3 values differ, first at (1,)" in found(
        lambda x: x + torch.tensor([0.0, 1e-7, 0.0], device=x.device), ones(3)
    )


def test_the_sign_of_zero_is_found():
    assert "-0.0" in found(torch.neg, torch.zeros(1))


def test_all_nans_are_equal():
    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert found(lambda x: x.flip(0), nan) is None


def test_close_values_pass_where_closeness_is_asked_for():
    def slightly_more(x):
        return x * (1 + 1e-7)

    assert found(slightly_more, ones(3)) is not None
    assert found(slightly_more, ones(3), rules=Rules("close")) is None
    assert found(lambda x: x * 1.1, ones(3), rules=Rules("close")) is not None


@pytest.mark.parametrize(
    "what, wrong",
    [
        ("shape", lambda x: x[:1]),
        ("strides", lambda x: x.t().contiguous().t()),
        ("dtype", lambda x: x.double()),
        ("device", lambda x: x.cpu()),
        ("requires_grad", lambda x: x.requires_grad_()),
        ("offset", lambda x: x.new_ones(10)[1:].view(3, 3)),
        ("class", torch.nn.Parameter),
        ("structure", lambda x: (x,)),
        ("type", lambda x: 1.0),
    ],
)
def test_a_result_unlike_that_of_the_cpu_is_found(what, wrong):
    assert what in found(wrong, ones(3, 3))


def test_lazy_conjugation_is_found():
    assert "conjugate bit" in found(lambda x: x.conj(), torch.ones(2, dtype=torch.complex64))


def test_a_missing_error_is_found():
    def fail(x):
        raise ValueError("no")

    assert found(lambda x: x, ones(1), on_host=fail) == (
        "the CPU raises ValueError: no; the device no error"
    )


def test_another_type_of_error_is_found():
    def fail(kind):
        def function(x):
            raise kind("no")

        return function

    assert found(fail(ValueError), ones(1), on_host=fail(ValueError)) is None
    assert found(fail(RuntimeError), ones(1), on_host=fail(ValueError)) is not None


def test_a_write_to_an_argument_is_found():
    assert "argument[0]" in found(lambda x: x.zero_() + 1, ones(3), on_host=lambda x: x + 0)


def test_a_write_beside_an_argument_is_found():
    def write_behind(x):
        torch.as_strided(x, (1,), (1,), 3).zero_()
        return x

    assert "memory" in found(write_behind, torch.ones(4)[:2])


def test_values_are_not_compared_when_the_cpu_draws():
    assert found(torch.rand_like, ones(3), on_host=torch.rand_like) is None
    assert "shape" in found(lambda x: torch.rand_like(x[:2]), ones(3), on_host=torch.rand_like)


def test_a_device_that_cannot_take_the_arguments_differs(monkeypatch):
    def move_to_host_only(value, device):
        if device == DEVICE:
            raise NotImplementedError("no such tensors here")
        return move(value, device)

    monkeypatch.setattr("conformance.comparison.move", move_to_host_only)
    assert "NotImplementedError: no such tensors here" in found(lambda x: x, ones(1))


def test_moving_keeps_memory_as_it_is():
    base = torch.arange(12.0).view(3, 4)
    view, complex_view = base.t()[1:], torch.ones(2, dtype=torch.complex64).conj()
    moved = move((base, view, complex_view, torch.device("cpu"), Stay(base)), DEVICE)
    assert moved[0].untyped_storage()._cdata == moved[1].untyped_storage()._cdata
    assert (moved[1].stride(), moved[1].storage_offset()) == (view.stride(), 1)
    assert moved[2].is_conj() and moved[2].device == DEVICE
    assert moved[3] == DEVICE
    assert moved[4].device == HOST and moved[4].data_ptr() != base.data_ptr()


def test_a_task_counts_its_cases_and_keeps_to_the_limit():
    task = Task("forward", "add", "float32")
    row = run_task(task, None)
    assert row.cases > 1 and row.failed == 0
    assert run_task(task, 1).cases == 1


def difference_everywhere(subject, dtype):
    yield "the case", "the difference"


@pytest.fixture
def failing(monkeypatch):
    """A check that finds a difference in everything."""
    from . import checks

    check = checks.CHECKS["forward"]._replace(cases=difference_everywhere)
    monkeypatch.setitem(checks.CHECKS, "forward", check)


def expect(monkeypatch, *entries):
    for module in (expected, report):
        monkeypatch.setattr(module, "EXPECTED", entries)
    monkeypatch.setattr("conformance.worker.EXPECTED", entries, raising=False)


def test_a_difference_is_counted_and_reported(failing):
    row = run_task(Task("forward", "abs", "float32"), None)
    assert (row.failed, row.expected) == (1, 0)
    assert not report.is_clean([row], stale=[])
    assert "| abs | 1 | `the case` (float32): the difference |" in report.markdown([row], [])


def test_an_expected_difference_is_not_a_failure(failing, monkeypatch):
    expect(monkeypatch, expected.Expected("a*", "forward", "diff", "by nature"))
    row = run_task(Task("forward", "abs", "float32"), None)
    assert (row.failed, row.expected, row.met) == (0, 1, [0])
    assert report.stale_entries([row], complete=True) == []
    assert "by nature" in report.markdown([row], [])


def test_an_expected_difference_that_is_gone_is_stale(monkeypatch):
    gone = expected.Expected("abs", "forward", "", "by nature")
    expect(monkeypatch, gone, expected.Expected("add", "forward", "", "not run"))
    row = run_task(Task("forward", "abs", "float32"), None)
    assert report.stale_entries([row], complete=True) == [gone]
    assert report.stale_entries([row], complete=False) == []
    assert not report.is_clean([row], [gone])


def serve_or_die(connection, limit, said):
    """A worker that dies of the subject "deadly", and falls silent at "endless"."""
    with open(said, "w") as file:
        print("last words", file=file, flush=True)
        while (tasks := connection.recv()) is not None:
            for task in tasks:
                if task.check == "deadly":
                    os.kill(os.getpid(), signal.SIGKILL)
                if task.check == "endless":
                    connection.recv()
                connection.send(Row(task.check, task.subject, task.dtype, cases=1))


def run_tasks(*checks, **options):
    subject_tasks = {"some": [Task(check, "some", "float32") for check in checks]}
    more = {"other": [Task("harmless", "other", "float32")]}
    return Runner(serve=serve_or_die, **options).run(subject_tasks | more)


def test_a_crash_is_named_and_the_rest_is_run():
    rows = run_tasks("harmless", "deadly", "harmless", jobs=1)
    assert [(row.subject, row.check, row.failed) for row in rows] == [
        ("some", "harmless", 0),
        ("some", "deadly", 1),
        ("some", "harmless", 0),
        ("other", "harmless", 0),
    ]
    assert rows[1].crash == "killed by signal 9: last words"


def test_a_silent_worker_is_given_up():
    rows = run_tasks("endless", jobs=1, silence=0)
    assert {row.crash for row in rows if row.check == "endless"} == {"sent nothing for 0 s"}


def test_parts_are_disjoint_complete_and_even():
    names = [str(i) for i in range(10)]
    parts = [part_of(names, part, 3) for part in (1, 2, 3)]
    assert sorted(sum(parts, [])) == sorted(names)
    assert sorted(map(len, parts)) == [3, 3, 4]


def test_a_part_has_some_dtypes_of_many_subjects():
    whole, parts = plan(), [plan(part=part, parts=3) for part in (1, 2, 3)]
    tasks = [task for part in parts for listed in part.values() for task in listed]
    assert len(tasks) == len(set(tasks)) == sum(map(len, whole.values()))
    assert all(len(part) > 0.8 * len(whole) for part in parts)


def test_a_plan_can_be_narrowed():
    planned = plan(checks=("forward", "out"), only=("add",), dtypes=("float32", "bool"))
    assert planned == {
        "add": [
            Task("forward", "add", "bool"),
            Task("out", "add", "bool"),
            Task("forward", "add", "float32"),
            Task("out", "add", "float32"),
        ]
    }


def test_a_plan_for_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="nonsense"):
        plan(only=("nonsense",))


def test_every_check_has_something_to_do():
    planned = {task.check for tasks in plan().values() for task in tasks}
    from .checks import CHECKS

    assert planned == set(CHECKS)


def test_rules_are_less_than_equality_only_by_name():
    assert expected.rules("add") == Rules()
    assert expected.rules("empty") == replace(Rules(), values="any")
