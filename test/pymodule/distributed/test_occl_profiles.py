"""Collectives and messages in a profile: their name, group, bytes and number, on their stream."""

import json
import pathlib
import tempfile

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, own_device, ranks_of
from torch.profiler import profile

from device import module

pytestmark = pytest.mark.own_processes


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    with ranks_of(tmp_path_factory.mktemp("group"), backend=BACKEND) as ranks:
        ranks.call(module_set)
        yield ranks


def module_set():
    module.set_device(own_device())
    dist.all_reduce(torch.ones(4, device=own_device()))
    module.synchronize()


def described(act):
    """Return the device's events of collectives: name, stream, and arguments of each."""
    module.synchronize()
    with profile() as profiler:
        act()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return [
        (event["name"], event["tid"], event["args"])
        for event in sorted(events, key=lambda event: event.get("ts", 0))
        if event.get("cat") == "kernel" and event["name"].startswith(f"{BACKEND}:")
    ]


def reduce_in_profile(is_async):
    tensor = torch.ones(6, device=own_device())

    def act():
        work = dist.all_reduce(tensor, async_op=is_async)
        if work is not None:
            work.wait()

    ((name, stream, facts),) = described(act)
    return name, stream != 0, facts


@pytest.mark.parametrize("is_async", [False, True])
def test_collective_event_has_its_arguments(ranks, is_async):
    for name, has_own_stream, facts in ranks.call(reduce_in_profile, is_async):
        assert (name, has_own_stream) == (f"{BACKEND}:allreduce", is_async)
        assert facts["Collective name"] == "allreduce"
        assert (facts["In msg nelems"], facts["Out msg nelems"], facts["bytes"]) == (6, 6, 24)
        assert (facts["Group size"], facts["dtype"]) == (2, "Float")
        assert facts["Process Group Name"] == "0"


def numbers_in_profile():
    tensor = torch.ones(6, device=own_device())

    def act():
        for _ in range(3):
            dist.all_reduce(tensor)

    return [facts["Seq"] for _, _, facts in described(act)]


def test_collectives_have_their_numbers(ranks):
    first, other = ranks.call(numbers_in_profile)
    assert first == other == list(range(first[0], first[0] + 3))


def send_in_profile():
    tensor = torch.ones(6, device=own_device())

    def act():
        if dist.get_rank() == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)

    return [(name, facts["bytes"]) for name, _, facts in described(act)]


def test_message_event_has_its_arguments(ranks):
    sent, received = ranks.call(send_in_profile)
    assert sent == [(f"{BACKEND}:send", 24)]
    assert received == [(f"{BACKEND}:recv", 24)]


def exchange_in_profile():
    mine, other = (torch.ones(6, device=own_device()) for _ in range(2))
    peer = 1 - dist.get_rank()

    def act():
        sends = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, other, peer)]
        for work in dist.batch_isend_irecv(sends):
            work.wait()

    return [(name, facts["In msg nelems"], facts["bytes"]) for name, _, facts in described(act)]


def test_messages_of_a_batch_are_one_event(ranks):
    assert ranks.call(exchange_in_profile) == [[(f"{BACKEND}:coalesced", 6, 24)]] * 2
