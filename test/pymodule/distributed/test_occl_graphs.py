"""Collectives in graphs: each replay reduces and gathers the ranks' current values."""

import pytest
import torch
import torch.distributed as dist
from peers import kept
from ranks import BACKEND, own_device, ranks_of

from device import module

pytestmark = pytest.mark.own_processes


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    with ranks_of(tmp_path_factory.mktemp("group"), backend=BACKEND) as ranks:
        ranks.call(prepare)
        yield ranks


def prepare():
    module.set_device(own_device())
    dist.all_reduce(torch.ones(1, device=own_device()))  # the group connects
    module.synchronize()


def captured(work):
    graph = module.CUDAGraph()
    with module.graph(graph, capture_error_mode="thread_local"):
        result = work()
    return graph, result


def reduce_in_a_graph(is_async):
    """Return the results of replays with values that differ by rank and replay."""
    x = torch.zeros(1000, device=own_device())

    def work():
        y = x * 2
        handle = dist.all_reduce(y, async_op=is_async)
        if handle is not None:
            handle.wait()
        return y + 1

    graph, y = captured(work)
    found = []
    for i in range(5):
        x.fill_(i + dist.get_rank())
        graph.replay()
        found.append(y.unique().tolist())
    return found


@pytest.mark.parametrize("is_async", [False, True])
def test_replays_reduce_current_values(ranks, is_async):
    expected = [[2.0 * (i + i + 1) + 1] for i in range(5)]
    assert ranks.call(reduce_in_a_graph, is_async) == [expected] * 2


def gather_in_a_graph():
    x = torch.zeros(3, device=own_device())
    parts = torch.zeros(6, device=own_device())
    graph, _ = captured(lambda: dist.all_gather_into_tensor(parts, x))
    x.fill_(dist.get_rank() + 1)
    graph.replay()
    return parts.tolist()


def test_replays_gather_current_values(ranks):
    assert ranks.call(gather_in_a_graph) == [[1.0] * 3 + [2.0] * 3] * 2


def reduce_before_and_after():
    """Eager collectives around a replay, on another stream than the capture's."""
    x = torch.ones(4, device=own_device())
    graph, _ = captured(lambda: dist.all_reduce(x))
    dist.all_reduce(x)
    graph.replay()
    dist.all_reduce(x)
    return x.tolist()


def test_eager_collectives_go_on_around_replays(ranks):
    assert ranks.call(reduce_before_and_after) == [[8.0] * 4] * 2


def begin_replay():
    x = torch.ones(4, device=own_device())
    graph, _ = captured(lambda: dist.all_reduce(x))
    kept["graph"], kept["x"] = graph, x
    dist.barrier()


def replay_alone():
    """Only this rank has replayed: the call returns, the stream waits."""
    if dist.get_rank() == 0:
        kept["graph"].replay()
    return dist.get_rank() == 1 or not module.current_stream().query()


def replay_rest():
    if dist.get_rank() == 1:
        kept["graph"].replay()
    return kept["x"].tolist()


def test_a_replay_does_not_wait_for_other_ranks_on_the_host(ranks):
    ranks.call(begin_replay)
    assert ranks.call(replay_alone) == [True, True]
    assert ranks.call(replay_rest) == [[2.0] * 4] * 2
