"""The order of a collective and other work: on which stream, before and behind which work."""

import pytest
import torch
import torch.distributed as dist
import torch_openreg._C as C
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
    C.set_queues_everything(True)
    module.set_device(own_device())
    tensor = torch.ones(4, device=own_device())
    tensor += 1  # the first launch of an operator is never queued
    kept["product"] = tensor * 2
    dist.all_reduce(tensor, async_op=True).wait()
    module.synchronize()


def gate(stream):
    """Work on the stream that lasts until the test opens it."""
    return C._Gate(own_device().index, stream.stream_id)


def start_behind_gate(is_async):
    """Call behind a gate, and return whether the call returned before the gate was opened."""
    stream = module.current_stream()
    tensor = torch.ones(4, device=own_device())
    module.synchronize()
    kept["gate"] = gate(stream)
    tensor += 1 + dist.get_rank()
    kept["tensor"] = tensor
    kept["work"] = dist.all_reduce(tensor, async_op=is_async)
    return stream.query(), kept["work"] is None or kept["work"].is_completed()


def open_and_read():
    kept.pop("gate").open()
    work = kept.pop("work")
    if work is not None:
        work.wait()
    return kept.pop("tensor").tolist()


@pytest.mark.parametrize("is_async", [False, True])
def test_calls_return_before_their_work_is_done(ranks, is_async):
    assert ranks.call(start_behind_gate, is_async) == [(False, not is_async)] * 2
    assert ranks.call(open_and_read) == [[5] * 4] * 2


def read_without_waiting():
    """The other rank has not called: the sum cannot be ready, and nothing waits for it."""
    tensor = torch.ones(4, device=own_device())
    kept["tensor"], kept["work"] = tensor, dist.all_reduce(tensor, async_op=True)
    return tensor.tolist()


def wait_and_read():
    kept.pop("work").wait()
    return kept.pop("tensor").tolist()


def test_without_a_wait_a_program_reads_old_data(ranks):
    ranks.peers[0].start(read_without_waiting)
    assert ranks.peers[0].finish() == [1] * 4
    assert ranks.peers[1].call(sum_now) == [2] * 4
    assert ranks.peers[0].call(wait_and_read) == [2] * 4


def sum_now():
    tensor = torch.ones(4, device=own_device())
    dist.all_reduce(tensor)
    return tensor.tolist()


def wait_on_side_stream():
    """Only the stream on which wait() was called waits."""
    tensor = torch.ones(4, device=own_device())
    module.synchronize()
    side = module.Stream(own_device())
    work = dist.all_reduce(tensor, async_op=True)
    with module.stream(side):
        work.wait()
        kept["result"] = tensor * 2
    kept["side"] = side
    return module.current_stream().query(), side.query()


def read_side():
    kept.pop("side").synchronize()
    return kept.pop("result").tolist()


def test_waiting_is_the_current_streams(ranks):
    assert ranks.peers[0].call(wait_on_side_stream) == (True, False)
    assert ranks.peers[1].call(sum_now) == [2] * 4
    assert ranks.peers[0].call(read_side) == [4] * 4


def call_on_two_streams():
    """The second is called on an idle stream while the first waits for a gate."""
    first = torch.ones(4, device=own_device())
    second = torch.full((4,), 2.0, device=own_device())
    module.synchronize()
    side = module.Stream(own_device())
    kept["gate"] = gate(side)
    with module.stream(side):
        dist.all_reduce(first)
    dist.broadcast(second, 1)
    kept["tensors"], kept["side"] = (first, second), side
    return module.current_stream().query()


def read_both():
    kept.pop("gate").open()
    kept.pop("side").synchronize()
    return [tensor.tolist() for tensor in kept.pop("tensors")]


def test_collectives_of_several_streams_are_in_the_order_of_the_calls(ranks):
    assert ranks.call(call_on_two_streams) == [False, False]
    assert ranks.call(read_both) == [[[2] * 4, [2] * 4]] * 2


def drop_what_is_used():
    """The memory must not be used again before the collective has read it."""
    tensor = torch.full((1 << 16,), 1.0 + dist.get_rank(), device=own_device())
    output = torch.empty(2 << 16, device=own_device())
    module.synchronize()
    side = module.Stream(own_device())
    kept["gate"] = gate(side)
    with module.stream(side):
        work = dist.all_gather_into_tensor(output, tensor, async_op=True)
    del work
    del tensor
    kept["fresh"] = [torch.zeros(1 << 16, device=own_device()) for _ in range(4)]
    kept["output"] = output


def read_output():
    kept.pop("gate").open()
    module.synchronize()
    del kept["fresh"]
    return kept.pop("output").view(2, -1).mean(dim=1).tolist()


def test_memory_is_kept_although_work_and_tensor_are_dropped(ranks):
    ranks.call(drop_what_is_used)
    assert ranks.call(read_output) == [[1, 2]] * 2


def continue_by_future():
    tensor = torch.ones(4, device=own_device())
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0] * 3)
    same = work.result()[0].data_ptr() == tensor.data_ptr()
    return future.wait().tolist(), same


def test_future(ranks):
    assert ranks.call(continue_by_future) == [([6] * 4, True)] * 2


def wait_for_barrier():
    """The program itself does not wait."""
    kept["others"] = torch.ones(4, device=own_device())
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    return work.is_completed(), work.is_success()


def test_barrier_waits_on_the_host(ranks):
    assert ranks.call(wait_for_barrier) == [(True, True)] * 2


def measure():
    module.set_device(own_device())
    backend = dist.group.WORLD._get_backend(own_device())
    backend._enable_collectives_timing()
    work = dist.all_reduce(torch.ones(4, device=own_device()), async_op=True)
    work.wait()
    module.synchronize()
    return work._get_duration() >= 0


def test_duration(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        assert ranks.call(measure) == [True, True]


def profile():
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CPU]) as result:
        dist.all_reduce(torch.ones(4, device=own_device()))
        dist.broadcast(torch.ones(4, device=own_device()), 0, async_op=True).wait()
    names = {event.name for event in result.events()}
    return {name for name in names if name.startswith((f"{BACKEND}:", "record_param"))}


def test_profiler_names_them(ranks):
    expected = {f"{BACKEND}:all_reduce", f"{BACKEND}:broadcast", "record_param_comms"}
    assert ranks.call(profile) == [expected] * 2
