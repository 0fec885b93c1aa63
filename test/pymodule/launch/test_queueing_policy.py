"""Whether a launch runs inline or is queued, by the policy in bridge/launch/policy.h.

The bridge counts queued launches. Where the policy depends on the speed of the machine, most of
many launches must go the expected way.
"""

import time

import pytest
import torch
from torch_openreg._C import launches_queued_by_thread, queues_everything, set_queues_everything

from device import DEVICE, module

SHORT, LONG = 4096, 1 << 22
LAUNCHES = 200


@pytest.fixture(autouse=True)
def usual_policy():
    before = queues_everything()
    set_queues_everything(False)
    module.synchronize()
    yield
    module.synchronize()
    set_queues_everything(before)


def ones(elements, device=DEVICE):
    made = torch.ones(elements, device=device)
    module.synchronize()
    return made


def queued(launch, times=1, between=module.synchronize):
    """Return how many of the launches were queued."""
    before = launches_queued_by_thread()
    for _ in range(times):
        launch()
        between()
    return launches_queued_by_thread() - before


def test_a_short_launch_on_an_idle_stream_runs_inline():
    x = ones(SHORT)
    assert queued(lambda: x + x, LAUNCHES) == 0


def test_a_short_launch_on_a_busy_stream_is_queued(close_gate):
    x = ones(SHORT)
    x.sin()
    x.sin()  # makes an output plan, because everything is queued
    module.synchronize()
    set_queues_everything(False)
    assert queued(lambda: x.sin()) == 0
    gate = close_gate()
    assert queued(lambda: x.sin(), between=lambda: None) == 1
    gate.open()


def test_the_first_launch_of_a_kind_runs_inline_and_the_next_is_queued():
    x = ones(LONG)
    assert queued(lambda: torch.logcumsumexp(x, 0)) == 0
    assert queued(lambda: torch.logcumsumexp(x, 0)) == 1


def test_a_launch_that_takes_many_handoffs_is_queued_even_if_the_program_waits():
    x = ones(LONG)
    queued(lambda: torch.sort(x), 2)
    assert queued(lambda: torch.sort(x), 4) == 4


# Elements and a call per kind of work. The call takes about ten times as long as queueing it, but
# too little to hide the shortest handoff.
MIDDLE_CALLS = {
    "launch": (1 << 16, lambda x: x.exp()),
    "draw": (1 << 15, lambda x: x.uniform_()),
    "copy": (1 << 19, lambda x: x[: len(x) // 2].copy_(x[len(x) // 2 :])),
    "converting copy": (1 << 18, lambda x: x.double()),
}


def does_something_else():
    until = time.perf_counter() + 0.0005
    while time.perf_counter() < until:
        pass


@pytest.mark.parametrize("kind", MIDDLE_CALLS)
def test_a_program_that_waits_after_each_call_has_middle_ones_inline(kind):
    elements, call = MIDDLE_CALLS[kind]
    x = ones(elements)
    queued(lambda: call(x), LAUNCHES)  # let the policy measure the program
    # Other load on the machine lengthens calls for a while, and long ones are queued.
    assert any(queued(lambda: call(x), LAUNCHES) < LAUNCHES / 2 for _ in range(20))


@pytest.mark.parametrize("kind", MIDDLE_CALLS)
def test_a_program_that_runs_ahead_has_middle_ones_queued(kind):
    elements, call = MIDDLE_CALLS[kind]
    x = ones(elements)
    queued(lambda: call(x), 5 * LAUNCHES, does_something_else)  # a window has many launches
    assert queued(lambda: call(x), LAUNCHES, does_something_else) > LAUNCHES / 2


def test_short_draws_and_copies_on_an_idle_stream_run_inline():
    x, y = ones(SHORT), ones(SHORT)
    assert queued(lambda: x.uniform_(), LAUNCHES) == 0
    few = SHORT // 4  # a copy's cost counts bytes
    assert queued(lambda: x[:few].copy_(y[:few]), LAUNCHES) == 0


def test_launches_that_cannot_be_queued_wait():
    x = ones(LONG)
    for _ in range(3):
        assert queued(lambda: torch.unique(x)) == 0  # its size depends on the content


def test_nothing_is_queued_with_launch_blocking(python):
    result = python(
        """
        import torch
        from torch_openreg._C import launches_queued_by_thread, set_queues_everything
        from device import DEVICE
        set_queues_everything(True)
        x = torch.ones(1 << 20, device=DEVICE)
        for _ in range(4):
            x.sort()
            x.uniform_()
            x.copy_(x + 1)
        print(launches_queued_by_thread())
        """,
        OPENREG_LAUNCH_BLOCKING="1",
    )
    assert result.stdout == "0\n"
