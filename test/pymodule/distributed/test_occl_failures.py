"""Failures of a group: their causes, which ranks report them, and errors of a single caller."""

import datetime
import os
import signal

import pytest
import torch
import torch.distributed as dist
from peers import kept
from ranks import BACKEND, own_device, ranks_of

from device import module

pytestmark = pytest.mark.own_processes


@pytest.fixture
def ranks(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        ranks.call(connect)
        yield ranks


def connect():
    module.set_device(own_device())
    dist.all_reduce(torch.ones(1, device=own_device()))
    module.synchronize()


def failure(function, *arguments, **options):
    """Return the error of a call: the name of its type, and its first line."""
    try:
        function(*arguments, **options)
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]
    return None


def error_of_group():
    return dist.group.WORLD._get_backend(own_device()).get_error().name


# ---- failures of the group -----------------------------------------------------------------------


def call_differently():
    tensor = torch.ones(3 + dist.get_rank(), device=own_device())
    work = dist.all_reduce(tensor, async_op=True)
    synchronized = failure(module.synchronize)
    waited = failure(work.wait)
    later = failure(dist.all_reduce, tensor)
    return synchronized, waited, later, work.is_success(), work.is_completed()


def test_ranks_that_call_different_things(ranks):
    """All ranks report it: at the next synchronization, by the Work, and by all later calls."""
    for synchronized, waited, later, succeeded, completed in ranks.call(call_differently):
        for kind, sentence in (synchronized, waited, later):
            assert kind == "DistBackendError"
            assert "3" in sentence
            assert "4" in sentence
        assert not succeeded
        assert completed


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_other():
    tensor = torch.ones(4, device=own_device())
    dist.all_reduce(tensor)
    first = failure(module.synchronize)
    return first, failure(dist.barrier)


def test_rank_that_is_killed(ranks):
    ranks.peers[0].start(wait_for_the_other)
    ranks.peers[1].start(be_killed)
    first, later = ranks.peers[0].finish()
    assert first[0] == later[0] == "DistBackendError"
    assert "rank 1" in first[1]
    ranks.peers[1].connection.close()


def wait_for_no_rank():
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(milliseconds=100))
    dist.all_reduce(torch.ones(4, device=own_device()))
    return failure(module.synchronize), error_of_group()


def test_rank_that_does_not_come_in_time(ranks):
    (kind, sentence), error = ranks.peers[0].call(wait_for_no_rank)
    assert kind == "DistBackendError"
    assert "rank 1" in sentence
    assert "all_reduce" in sentence
    assert error == "TIMEOUT"


def error_where(propagates):
    os.environ["TORCH_NCCL_PROPAGATE_ERROR"] = propagates
    return error_of_group()


def test_a_failure_of_another_rank_is_remote_where_it_is_propagated(ranks):
    assert ranks.call(error_of_group) == ["SUCCESS"] * 2
    ranks.peers[0].call(wait_for_no_rank)
    assert ranks.call(error_where, "0") == ["TIMEOUT", "COMM_ERROR"]
    assert ranks.call(error_where, "1") == ["TIMEOUT", "REMOTE_ERROR"]
    ranks.call(call_after_abort)
    assert ranks.call(error_where, "1")[0] == "TIMEOUT"


def wait_with_timeout():
    work = dist.all_reduce(torch.ones(4, device=own_device()), async_op=True)
    answer = failure(work.wait, datetime.timedelta(milliseconds=50))
    return answer, failure(dist.barrier), error_of_group()


def test_timeout_of_a_wait(ranks):
    (kind, sentence), later, error = ranks.peers[0].call(wait_with_timeout)
    assert kind == later[0] == "DistBackendError"
    assert "timed out in blocking wait" in sentence
    assert error == "TIMEOUT"


def abort_behind():
    """Abort a collective that waits for the other rank."""
    work = dist.all_reduce(torch.ones(4, device=own_device()), async_op=True)
    dist.group.WORLD._get_backend(own_device()).abort()
    return failure(module.synchronize), failure(work.wait), error_of_group()


def call_after_abort():
    return failure(dist.all_reduce, torch.ones(4, device=own_device()))


def test_abort(ranks):
    synchronized, waited, error = ranks.peers[0].call(abort_behind)
    assert synchronized[0] == waited[0] == "DistBackendError"
    assert error == "COMM_ERROR"
    answer = ranks.peers[1].call(call_after_abort)
    assert answer[0] == "DistBackendError"


def init_again(folder, size):
    dist.destroy_process_group()
    store = dist.FileStore(folder, size)
    dist.init_process_group(BACKEND, store=store, rank=int(kept["rank"]), world_size=size)
    connect()
    tensor = torch.ones(2, device=own_device())
    dist.all_reduce(tensor)
    return tensor.tolist()


def keep_rank():
    kept["rank"] = dist.get_rank()


def test_group_is_made_again_after_one_failed(ranks, tmp_path):
    ranks.call(keep_rank)
    ranks.call(call_differently)
    assert ranks.call(init_again, str(tmp_path / "again"), 2) == [[2, 2]] * 2


# ---- errors of the caller ------------------------------------------------------------------------


def refuse():
    device, size = own_device(), dist.get_world_size()
    tensor = torch.ones(4, 4, device=device)
    other = torch.ones(4, 4, device=torch.device(device.type, 1 - device.index))
    answers = [
        failure(dist.all_reduce, tensor.t()[1:]),
        failure(dist.all_reduce, torch.ones(2)),
        failure(dist.all_gather_into_tensor, torch.empty(5, device=device), tensor),
        failure(dist.all_gather_into_tensor, torch.empty(8, 4, device=device).int(), tensor),
        failure(dist.reduce_scatter_tensor, tensor, tensor),
        failure(dist.all_gather, [tensor, other], tensor),
        failure(dist.all_gather, [tensor] * (size + 1), tensor),
        failure(dist.all_reduce, tensor > 0, dist.ReduceOp.AVG),
        failure(dist.all_to_all_single, torch.ones(3, device=device), torch.ones(3, device=device)),
        failure(dist.all_reduce, tensor.to(torch.float8_e5m2fnuz)),
        failure(dist.all_reduce, tensor.to_sparse()),
    ]
    dist.all_reduce(tensor)
    return answers, tensor.unique().tolist()


def test_mistakes_are_refused_by_ones_own_rank_and_leave_the_group_as_it_is(ranks):
    title = BACKEND.upper()
    for answers, result in ranks.call(refuse):
        assert result == [2]
        assert answers[0] == ("ValueError", "Tensors must be contiguous")
        kind, sentence = answers[1]
        assert (kind, sentence) == (
            "RuntimeError",
            "No backend type associated with device type cpu",
        )
        assert answers[2] == (
            "ValueError",
            "output tensor size must be equal to world_size times input tensor size",
        )
        assert answers[3][0] == "TypeError"
        assert answers[4] == (
            "ValueError",
            "input tensor must be the same size as output size times world size",
        )
        assert answers[5] == ("RuntimeError", "Expecting all tensors on the same device")
        assert answers[6][0] == "ValueError"
        assert answers[7] == ("TypeError", "Cannot use ReduceOp.AVG with boolean inputs")
        assert answers[8] == (
            "RuntimeError",
            "Tensor's dim 0 does not divide equally across group size",
        )
        assert answers[9] == ("RuntimeError", f"Unsupported Float8 type for {title} reduction")
        assert answers[10] is not None


def reduce_float8():
    return failure(dist.all_reduce, torch.ones(4, device=own_device()).to(torch.float8_e5m2))


def use_profile(name):
    os.environ["OPENREG_GROUP"] += f"-{name}"
    os.environ["OPENREG_PROFILE"] = name


def test_older_gpus_do_not_reduce_float8(tmp_path):
    profiles = ["a100"] * 2
    with ranks_of(tmp_path, backend=BACKEND, prepare=use_profile, places=profiles) as ranks:
        for kind, sentence in ranks.call(reduce_float8):
            assert kind == "DistBackendError"
            assert "begins with sm90" in sentence
            assert "has sm80" in sentence


def share_one_device():
    return failure(dist.all_reduce, torch.ones(1, device=torch.device(own_device().type, 0)))


def test_two_ranks_on_one_device_are_refused(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        for kind, sentence in ranks.call(share_one_device):
            assert kind == "DistBackendError"
            assert "device" in sentence
