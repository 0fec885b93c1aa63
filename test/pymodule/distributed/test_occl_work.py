"""What a program can query from Work objects and groups."""

import datetime
import os
import signal

import pytest
import torch
import torch.distributed as dist
from peers import kept
from ranks import BACKEND, own_device, ranks_of

from device import DEVICE, module

pytestmark = pytest.mark.own_processes

WorkResult = torch._C._distributed_c10d.WorkResult


@pytest.fixture
def ranks(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        ranks.call(connect)
        yield ranks


def connect():
    module.set_device(own_device())
    dist.all_reduce(torch.ones(1, device=own_device()))
    module.synchronize()


def backend():
    return dist.group.WORLD._get_backend(own_device())


def set_timeout(milliseconds):
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(milliseconds=milliseconds))


# ---- results -------------------------------------------------------------------------------------


def begin():
    kept["work"] = dist.all_reduce(torch.ones(2, device=own_device()), async_op=True)
    kept["result"] = kept["work"].get_future_result()
    return kept["result"].done()


def result():
    kept.pop("work")
    return WorkResult(kept.pop("result").wait()).name


def test_result_of_work(ranks):
    assert ranks.peers[0].call(begin) is False
    ranks.peers[1].call(begin)
    assert ranks.call(result) == ["SUCCESS"] * 2


def fall_behind():
    set_timeout(100)
    begin()
    return result()


def test_result_of_work_that_took_too_long(ranks):
    assert ranks.peers[0].call(fall_behind) == "TIMEOUT"


def wait_briefly():
    begin()
    with pytest.raises(dist.DistBackendError, match="timed out in blocking wait"):
        kept["work"].wait(datetime.timedelta(milliseconds=50))
    return result()


def test_result_of_work_that_was_waited_for_too_briefly(ranks):
    assert ranks.peers[0].call(wait_briefly) == "TIMEOUT"


def begin_differently():
    kept["work"] = dist.all_reduce(
        torch.ones(2 + dist.get_rank(), device=own_device()), async_op=True
    )
    kept["result"] = kept["work"].get_future_result()
    return result()


def test_result_of_work_that_failed(ranks):
    assert ranks.call(begin_differently) == ["COMM_ERROR"] * 2


# ---- time ----------------------------------------------------------------------------------------


def has_timeout(work, seconds):
    return backend()._verify_work_timeout(work, datetime.timedelta(seconds=seconds))


def call_twice_with_more_time():
    for seconds in (3, 4):
        backend()._add_ephemeral_timeout(datetime.timedelta(seconds=seconds))
    tensor = torch.ones(2, device=own_device())
    kept["works"] = [dist.all_reduce(tensor, async_op=True) for _ in range(2)]
    return [has_timeout(work, 127) for work in kept["works"]]


def call_again():
    for work in kept.pop("works", []):
        work.wait()
    module.synchronize()
    work = dist.all_reduce(torch.ones(2, device=own_device()), async_op=True)
    work.wait()
    return has_timeout(work, 120)


def test_time_is_added_until_a_call_has_ended(ranks):
    assert ranks.peers[0].call(call_twice_with_more_time) == [True, True]
    ranks.peers[1].call(come)
    ranks.peers[1].call(come)
    assert ranks.call(call_again) == [True, True]


def outlast():
    set_timeout(1)
    backend()._add_ephemeral_timeout(datetime.timedelta(minutes=2))
    tensor = torch.ones(2, device=own_device())
    dist.all_reduce(tensor)
    kept["tensor"] = tensor


def read():
    return kept.pop("tensor").tolist()


def come():
    dist.all_reduce(torch.ones(2, device=own_device()))
    module.synchronize()


def test_a_call_has_the_time_that_was_added(ranks):
    ranks.peers[0].call(outlast)
    ranks.peers[1].call(come)
    assert ranks.peers[0].call(read) == [2, 2]


# ---- memory --------------------------------------------------------------------------------------


def allocate():
    group, device = backend(), own_device()
    before = module.memory_allocated()
    tensor = group.allocate_tensor(5, dtype=torch.float64, device=device)
    tensor.fill_(dist.get_rank() + 1)
    dist.all_reduce(tensor)
    pool = module.MemPool(group.mem_allocator)
    if DEVICE == "cuda":
        group.register_mem_pool(pool)
    with module.use_mem_pool(pool):
        other = torch.ones(3, device=device)
    dist.all_reduce(other)
    if DEVICE == "cuda":
        group.deregister_mem_pool(pool)
    supported = group.supports_tensor_alloc(device)
    return supported, tensor.tolist(), tensor.dtype, other.tolist(), before


def test_memory_of_the_group(ranks):
    expected = (True, [3.0] * 5, torch.float64, [2.0] * 3)
    assert [answer[:4] for answer in ranks.call(allocate)] == [expected] * 2


UNCONNECTED = f"""
import torch, torch.distributed as dist
dist.init_process_group("{BACKEND}", store=dist.HashStore(), rank=0, world_size=1)
group = dist.group.WORLD._get_backend(torch.device("{DEVICE}"))
print(group.supports_tensor_alloc(torch.device("{DEVICE}", 0)))
try:
    group.allocate_tensor(5, dtype=torch.float32, device=torch.device("{DEVICE}", 0))
except RuntimeError as error:
    print(type(error).__name__, str(error).split(". ")[0])
"""


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("h100", ["True", f"DistBackendError {BACKEND.upper()} communicator has not been "
                  "initialized before mem pool creation"]),
        ("a100", ["False", f"RuntimeError {BACKEND.upper()} mem allocator is not supported in "
                  f"this {BACKEND.upper()} version"]),
    ],
)  # fmt: skip
def test_memory_is_refused_as_by_nccl(python, profile, expected):
    assert python(UNCONNECTED, OPENREG_PROFILE=profile).stdout.splitlines() == expected


# ---- Ctrl-C --------------------------------------------------------------------------------------


def wait_for_ever(words):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore it
    tensor = torch.ones(2, device=own_device())
    work = dist.all_reduce(tensor, async_op=True)
    try:
        os.write(words, b"x")
        work.wait(datetime.timedelta(minutes=2))
    except KeyboardInterrupt:
        return "interrupted"
    return None


def pid():
    return os.getpid()


def wait_and_tell(path):
    with open(path, "wb") as pipe:
        return wait_for_ever(pipe.fileno())


def test_blocking_wait_is_ended_by_ctrl_c(ranks, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    process = ranks.peers[0].call(pid)
    ranks.peers[0].start(wait_and_tell, str(path))
    with open(path, "rb") as pipe:
        pipe.read(1)
    os.kill(process, signal.SIGINT)
    assert ranks.peers[0].finish() == "interrupted"
    ranks.peers[1].call(come)


# ---- threads -------------------------------------------------------------------------------------

THREADS = f"""
import sys, threading, torch, torch.distributed as dist
module = torch.get_device_module("{DEVICE}")
group_class = dist.ProcessGroup{BACKEND.upper()}
store, results = dist.HashStore(), {{}}
device = torch.device("{DEVICE}", 0)
torch.ones(1, device=device)
def run(rank, own):
    try:
        group = group_class(store, rank, 2, group_class.Options())
        with module.stream(module.Stream(device) if own else module.current_stream(device)):
            tensor = torch.full((4,), rank + 1.0, device=device)
            for _ in range(3):
                options = dist.AllreduceOptions()
                options.asyncOp = ASYNC
                work = group.allreduce([tensor], options)
                if work is not None:
                    work.wait()
            results[rank] = tensor.tolist()
    except dist.DistBackendError as error:
        results[rank] = "give each rank its own stream" in str(error)
threads = [threading.Thread(target=run, args=(rank, OWN)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(results[0], results[1])
"""


@pytest.mark.parametrize("is_async", [False, True])
def test_threads_that_share_a_device_and_have_streams_of_their_own(python, is_async):
    code = f"OWN, ASYNC = True, {is_async}\n" + THREADS
    assert python(code, OPENREG_SHARE_DEVICE="1").stdout == f"{[12.0] * 4} {[12.0] * 4}\n"


def test_threads_that_share_a_device_and_a_stream_are_refused_at_once(python):
    code = "OWN, ASYNC = False, False\n" + THREADS
    assert python(code, OPENREG_SHARE_DEVICE="1").stdout == "True True\n"


ONE_THREAD = f"""
import torch, torch.distributed as dist, threading
group_class = dist.ProcessGroup{BACKEND.upper()}
store, device = dist.HashStore(), torch.device("{DEVICE}", 0)
groups = [group_class(store, rank, 2, group_class.Options()) for rank in range(2)]
threads = [threading.Thread(target=group.eager_connect_single_device, args=(device,))
           for group in groups]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tensors = [torch.ones(2, device=device) for _ in groups]
works = [group.allreduce([tensor]) for group, tensor in zip(groups, tensors)]
for work in works:
    work.wait()
print(tensors[0].tolist(), tensors[1].tolist())
"""


def test_one_thread_may_have_ranks_with_one_stream(python):
    assert python(ONE_THREAD, OPENREG_SHARE_DEVICE="1").stdout == "[2.0, 2.0] [2.0, 2.0]\n"
