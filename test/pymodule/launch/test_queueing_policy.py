"""What happens to a launch: inline or queued, as bridge/launch/policy.h says.

Whether one was queued is asked of the bridge. Where that depends on how fast the machine is,
most launches of many must go the way that the program calls for.
"""

import time

import pytest
import torch
from torch_openreg._C import queued_by_this_thread, queues_everything, set_queues_everything

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
    before = queued_by_this_thread()
    for _ in range(times):
        launch()
        between()
    return queued_by_this_thread() - before


def test_a_short_launch_on_an_idle_stream_runs_inline():
    x = ones(SHORT)
    assert queued(lambda: x + x, LAUNCHES) == 0


def test_a_short_launch_on_a_busy_stream_is_queued(close_gate):
    x = ones(SHORT)
    x.sin()
    x.sin()  # of this one what it gives is known, for everything is queued
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


def test_a_launch_that_takes_many_hand_overs_is_queued_even_if_it_is_waited_for():
    x = ones(LONG)
    queued(lambda: torch.sort(x), 2)
    assert queued(lambda: torch.sort(x), 4) == 4


# Elements and a call, of each kind of work: one that takes some ten times as long as to queue it,
# and less than what hides the shortest hand-over.
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
    queued(lambda: call(x), LAUNCHES)  # the program shows what it is like
    # What others do on the machine lengthens them for a while, and long ones are queued.
    assert any(queued(lambda: call(x), LAUNCHES) < LAUNCHES / 2 for _ in range(20))


@pytest.mark.parametrize("kind", MIDDLE_CALLS)
def test_a_program_that_runs_ahead_has_middle_ones_queued(kind):
    elements, call = MIDDLE_CALLS[kind]
    x = ones(elements)
    queued(lambda: call(x), 5 * LAUNCHES, does_something_else)  # it is judged by windows of many
    assert queued(lambda: call(x), LAUNCHES, does_something_else) > LAUNCHES / 2


def test_short_draws_and_copies_on_an_idle_stream_run_inline():
    x, y = ones(SHORT), ones(SHORT)
    assert queued(lambda: x.uniform_(), LAUNCHES) == 0
    few = SHORT // 4  # of a copy, bytes are counted
    assert queued(lambda: x[:few].copy_(y[:few]), LAUNCHES) == 0


def test_what_cannot_be_queued_is_waited_for():
    x = ones(LONG)
    for _ in range(3):
        assert queued(lambda: torch.unique(x)) == 0  # as long as what is in it


def test_nothing_is_queued_where_launches_block(python):
    result = python(
        """
        import torch
        from torch_openreg._C import queued_by_this_thread, set_queues_everything
        from device import DEVICE
        set_queues_everything(True)
        x = torch.ones(1 << 20, device=DEVICE)
        for _ in range(4):
            x.sort()
            x.uniform_()
            x.copy_(x + 1)
        print(queued_by_this_thread())
        """,
        OPENREG_LAUNCH_BLOCKING="1",
    )
    assert result.stdout == "0\n"
