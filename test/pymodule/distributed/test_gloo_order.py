"""A collective runs after the earlier work of its streams, and does not block its caller.

Failures reach the thread that waits.
"""

import pytest
import torch
import torch.distributed as dist
import torch_openreg._C as C
from peers import kept
from ranks import own_device, ranks_of

from device import module

pytestmark = pytest.mark.own_processes


def queue_everything():
    C.set_queues_everything(True)
    tensor = torch.ones(4, device=own_device())
    tensor += 1  # the first launch of an operator is never queued
    module.synchronize(own_device())


@pytest.fixture(scope="module", autouse=True)
def all_queued(ranks):
    ranks.call(queue_everything)


def start_behind_gate(collective, side):
    """Close a gate on the stream, call the collective behind it; return whether it has ended."""
    device = own_device()
    module.set_device(device)
    stream = module.Stream(device) if side else module.default_stream(device)
    with module.stream(stream):
        tensor = torch.ones(4, device=device)
        module.synchronize(device)
        kept["gate"] = C._Gate(device.index, stream.stream_id)
        tensor += 1 + dist.get_rank()
        kept["work"] = collective(tensor)
    kept["tensor"] = tensor
    return kept["work"].is_completed()


def finish_behind_gate():
    """Use the result on another stream."""
    kept["gate"].open()
    kept["work"].wait()
    with module.stream(module.Stream(own_device())):
        return (kept.pop("tensor") * 1).tolist()


def start_sum(tensor):
    return dist.all_reduce(tensor, async_op=True)


def start_broadcast(tensor):
    return dist.broadcast(tensor, 1, async_op=True)


@pytest.mark.parametrize("side", [False, True], ids=["default", "side"])
@pytest.mark.parametrize(("collective", "expected"), [(start_sum, 5), (start_broadcast, 3)])
def test_a_collective_includes_earlier_launches(ranks, collective, expected, side):
    assert ranks.call(start_behind_gate, collective, side) == [False, False]
    assert ranks.call(finish_behind_gate) == [[expected] * 4] * 2


def start_two():
    """The first waits for a gate; the second, on another stream, does not."""
    device = own_device()
    module.set_device(device)
    tensors = [torch.ones(4, device=device) for _ in range(2)]
    module.synchronize(device)
    side = module.Stream(device)
    kept["gate"] = C._Gate(device.index, side.stream_id)
    with module.stream(side):
        tensors[0] += 1
        first = dist.all_reduce(tensors[0], async_op=True)
    second = dist.all_reduce(tensors[1], async_op=True)
    second.wait()
    kept["tensor"], kept["work"] = tensors[0], first
    return tensors[1].tolist(), first.is_completed()


def test_streams_do_not_wait_for_each_other(ranks):
    assert ranks.call(start_two) == [([2] * 4, False)] * 2
    assert ranks.call(finish_behind_gate) == [[4] * 4] * 2


def forget_tensor():
    """Only the Work holds the tensor, and its memory is requested again meanwhile."""
    device = own_device()
    module.set_device(device)
    tensor = torch.ones(1 << 20, device=device)
    before = tensor.data_ptr()
    module.synchronize(device)
    kept["gate"] = C._Gate(device.index, module.default_stream(device).stream_id)
    kept["work"] = dist.all_reduce(tensor, async_op=True)
    del tensor
    other = torch.empty(1 << 20, device=device)
    kept["tensor"] = kept["work"].get_future()
    return other.data_ptr() != before


def result_of_forgotten():
    kept["gate"].open()
    return kept.pop("tensor").wait()[0].sum().item()


def test_tensors_live_until_it_is_done(ranks):
    assert ranks.call(forget_tensor) == [True, True]
    assert ranks.call(result_of_forgotten) == [2.0 * (1 << 20)] * 2


def start_message():
    """Rank 0 sends the result of its latest launch."""
    device = own_device()
    module.set_device(device)
    tensor = torch.zeros(4, device=device)
    if dist.get_rank() == 0:
        tensor += 7
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    return (tensor * 1).tolist()


def test_messages_come_after_earlier_launches(ranks):
    assert ranks.call(start_message) == [[7] * 4] * 2


def fail_before():
    """A queued launch fails before the collective may read."""
    device = own_device()
    module.set_device(device)
    rows, indices = torch.ones(4, 3, device=device), torch.tensor([0, 3], device=device)
    torch.index_select(rows, 0, indices)
    indices += 1
    module.synchronize(device)
    gate = C._Gate(device.index, module.default_stream(device).stream_id)
    torch.index_select(rows, 0, indices)
    work = dist.all_reduce(rows, async_op=True)
    gate.open()
    try:
        work.wait()
    except torch.AcceleratorError as error:
        return "index out of" in str(error)
    return False


def test_a_failure_of_earlier_work_is_raised_by_wait(ranks):
    assert ranks.call(fail_before) == [True, True]


def wait_for_killed():
    tensor = torch.ones(4, device=own_device())
    try:
        dist.all_reduce(tensor)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def test_a_killed_peer_is_an_error(tmp_path):
    with ranks_of(tmp_path, backend="gloo") as ranks:
        ranks.call(start_message)
        first, second = ranks.peers
        first.start(wait_for_killed)
        second.kill()
        kind, message = first.finish()
    assert kind == "RuntimeError"
    assert "closed by peer" in message.lower() or "reset by peer" in message.lower()
