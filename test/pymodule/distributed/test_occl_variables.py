"""Environment variables for groups, and the end of a process while a thread holds the GIL."""

import datetime
import os

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, own_device, ranks_of

from device import DEVICE, module

pytestmark = pytest.mark.own_processes


def set_variables(variables):
    os.environ.update(variables)


def ranks_with(folder, size=2, **variables):
    return ranks_of(
        folder,
        size,
        devices=size,
        prepare=set_variables,
        places=[variables] * size,
        backend=BACKEND,
    )


def connect():
    module.set_device(own_device())
    dist.all_reduce(torch.ones(1, device=own_device()))
    module.synchronize()


def failure(function, *arguments):
    try:
        function(*arguments)
    except dist.DistBackendError as error:
        return str(error)
    return None


# ---- blocking waits ------------------------------------------------------------------------------


def wait_for_no_rank():
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(milliseconds=100))
    work = dist.all_reduce(torch.ones(2, device=own_device()), async_op=True)
    return failure(work.wait)


@pytest.mark.parametrize("name", ["TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"])
def test_wait_raises_when_the_time_is_over(tmp_path, name):
    with ranks_with(tmp_path, **{name: "1"}) as ranks:
        ranks.call(connect)
        sentence = ranks.peers[0].call(wait_for_no_rank)
        assert "timed out in blocking wait" in sentence or "rank 1 did not reach" in sentence
        ranks.has_failed = True


def wait():
    work = dist.all_reduce(torch.ones(2, device=own_device()), async_op=True)
    work.wait()
    return work.is_completed()


def test_wait_returns_when_the_work_is_done(tmp_path):
    with ranks_with(tmp_path, TORCH_NCCL_BLOCKING_WAIT="1") as ranks:
        ranks.call(connect)
        ranks.peers[0].start(wait)
        assert not ranks.peers[0].connection.poll(0.1)
        ranks.peers[1].start(wait)
        assert ranks.finish() == [True, True]


# ---- how errors are handled ----------------------------------------------------------------------


def call_differently():
    dist.all_reduce(torch.ones(2 + dist.get_rank(), device=own_device()))
    return failure(module.synchronize), failure(connect)


@pytest.mark.parametrize("mode", range(4))
def test_the_process_goes_on_however_errors_are_to_be_handled(tmp_path, mode):
    """With NCCL, all values except 0 and 2 end the process."""
    with ranks_with(tmp_path, TORCH_NCCL_ASYNC_ERROR_HANDLING=str(mode)) as ranks:
        ranks.call(connect)
        for first, later in ranks.call(call_differently):
            assert "called all_reduce #2" in first
            assert "called all_reduce #2" in later


def fail_within_the_call():
    connect()
    tensor = torch.ones(2 + dist.get_rank(), device=own_device())
    raised = failure(dist.all_reduce, tensor)
    return raised, failure(lambda: dist.all_reduce(tensor, async_op=True)), tensor.tolist()


def test_blocking_launches_raise_the_error_of_their_work(tmp_path):
    with ranks_with(tmp_path, OPENREG_LAUNCH_BLOCKING="1") as ranks:
        for rank, (first, later, numbers) in enumerate(ranks.call(fail_within_the_call)):
            assert "called all_reduce #2" in first
            assert "called all_reduce #2" in later
            assert numbers == [1] * (2 + rank)


# ---- one device ----------------------------------------------------------------------------------


def share():
    device = torch.device(DEVICE, 0)
    module.set_device(device)
    tensor = torch.full((3,), dist.get_rank() + 1.0, device=device)
    dist.all_reduce(tensor)
    gathered = torch.empty(6, device=device)
    dist.all_gather_into_tensor(gathered, tensor + dist.get_rank())
    if dist.get_rank() == 0:
        dist.send(gathered, 1)
    else:
        dist.recv(tensor.resize_(6), 0)
    return tensor.tolist(), gathered.tolist()


def test_two_processes_may_share_a_device(tmp_path):
    with ranks_with(tmp_path, OPENREG_SHARE_DEVICE="1") as ranks:
        gathered = [3.0] * 3 + [4.0] * 3
        assert ranks.call(share) == [([3.0] * 3, gathered), (gathered, gathered)]


def share_by_mistake():
    return failure(share) or ""


@pytest.mark.parametrize("value", ["0", "2"])
def test_sharing_is_refused(tmp_path, value):
    with ranks_with(tmp_path, OPENREG_SHARE_DEVICE=value) as ranks:
        if value == "0":
            assert all("have the same device" in answer for answer in ranks.call(share_by_mistake))
        else:
            with pytest.raises(RuntimeError, match="OPENREG_SHARE_DEVICE=2: expected 0 or 1"):
                ranks.call(share_by_mistake)


# ---- the end -------------------------------------------------------------------------------------

HELD = f"""
import gc, threading, torch, torch.distributed as dist
group_class = dist.ProcessGroup{BACKEND.upper()}
store, groups = dist.HashStore(), {{}}
devices = [torch.device("{DEVICE}", rank) for rank in range(2)]
tensors = [torch.ones(2, device=device) for device in devices]
def make(rank):
    groups[rank] = group_class(store, rank, 2, group_class.Options())
    groups[rank].eager_connect_single_device(devices[rank])
threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
work = groups[0].allreduce([tensors[0]])
del groups[0]  # with the GIL, so the other thread cannot make its call
gc.collect()
other = threading.Thread(target=lambda: groups[1].allreduce([tensors[1]]).wait())
other.start()
other.join()
work.wait()
print(tensors[0].tolist(), tensors[1].tolist())
"""


def test_a_group_may_end_before_its_work(python):
    assert python(HELD).stdout == "[2.0, 2.0] [2.0, 2.0]\n"


LAST_ACT = f"""
import os, torch, torch.distributed as dist
dist.init_process_group("{BACKEND}", store=dist.HashStore(), rank=0, world_size=1)
class Last:
    def __init__(self):
        self.group = dist.group.WORLD._get_backend(torch.device("{DEVICE}"))
        self.tensor = torch.ones(2, device="{DEVICE}")
        self.work = self.group.allreduce([self.tensor])
    def __del__(self):
        os.write(1, b"gone")
last = Last()
last.circle = last
del last
dist.group.WORLD = None
"""


def test_a_group_may_end_when_the_interpreter_does(python):
    assert python(LAST_ACT, fresh=True).stdout.startswith("gone")
