"""What is called or checked for each work: completion hooks, NaN checks, PyTorch's registry."""

import functools
import os

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, own_device, ranks_of
from torch.distributed import _functional_collectives

from device import module

pytestmark = pytest.mark.own_processes


def set_variables(variables):
    os.environ.update(variables)


def ranks_with(folder, **variables):
    return ranks_of(
        folder, 2, devices=2, prepare=set_variables, places=[variables] * 2, backend=BACKEND
    )


def failure(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


# ---- completion hooks ----------------------------------------------------------------------------


def report_works():
    module.set_device(own_device())
    group, reports = dist.group.WORLD, []
    group._register_on_completion_hook(
        lambda info: reports.append((info.op_type.name, info.seq, info.active_duration))
    )
    again = failure(lambda: group._register_on_completion_hook(print))
    tensor = torch.ones(4, device=own_device())
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0, async_op=True)
    if dist.get_rank() == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    group._wait_for_pending_works()
    assert all(duration.total_seconds() > 0 for *_, duration in reports)
    return again, group._has_hooks(), [(name, number) for name, number, _ in reports]


def test_a_hook_is_called_after_each_work_in_the_order_of_the_calls(tmp_path):
    with ranks_with(tmp_path, TORCH_NCCL_ENABLE_TIMING="1") as ranks:
        for rank, (again, has_hooks, reports) in enumerate(ranks.call(report_works)):
            assert again[0] == "DistBackendError"
            assert "OnCompletion hook already registered" in again[1]
            assert has_hooks
            message = "SEND" if rank == 0 else "RECV"
            assert reports == [("ALLREDUCE", 1), ("BROADCAST", 2), (message, 1)]


def register_without_timing():
    return failure(lambda: dist.group.WORLD._register_on_completion_hook(print))


def test_a_hook_needs_the_times_of_works(tmp_path):
    with ranks_with(tmp_path) as ranks:
        for name, message in ranks.call(register_without_timing):
            assert name == "ValueError"
            assert "TORCH_NCCL_ENABLE_TIMING" in message


def raise_in_hook():
    module.set_device(own_device())
    group = dist.group.WORLD

    def refuse(info):
        raise KeyError("a mistake of the hook")

    group._register_on_completion_hook(refuse)
    dist.all_reduce(torch.ones(4, device=own_device()))
    group._wait_for_pending_works()
    return failure(lambda: dist.all_reduce(torch.ones(4, device=own_device())))


def test_an_exception_of_a_hook_ends_the_group(tmp_path):
    with ranks_with(tmp_path, TORCH_NCCL_ENABLE_TIMING="1") as ranks:
        answers = ranks.call(raise_in_hook)
        ranks.has_failed = True
        assert [name for name, _ in answers] == ["DistBackendError"] * 2
        assert any("a mistake of the hook" in message for _, message in answers)


# ---- NaN checks ----------------------------------------------------------------------------------


def reduce_nan(dtype):
    module.set_device(own_device())
    tensor = torch.ones(1000, device=own_device())
    if dist.get_rank() == 0:
        tensor[321] = torch.nan
    tensor = tensor.to(dtype)

    def gather():
        output = torch.empty(2000, dtype=dtype, device=own_device())
        dist.all_gather_into_tensor(output, tensor)
        module.synchronize()

    return failure(gather)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_a_rank_that_sends_nan_fails_if_the_variable_is_set(tmp_path, dtype):
    with ranks_with(tmp_path, TORCH_NCCL_NAN_CHECK="1") as ranks:
        ranks.peers[0].start(reduce_nan, dtype)
        name, message = ranks.peers[0].finish()
        ranks.has_failed = True
        assert "NaN" in message


def receive_into_nan(checks):
    module.set_device(own_device())
    backend = dist.group.WORLD._get_backend(own_device())
    backend._set_enable_nan_check(checks)
    fill = 1.0 if dist.get_rank() == 0 else torch.nan
    tensor = torch.full((4,), fill, device=own_device())
    dist.broadcast(tensor, 0)
    gathered = torch.full((8,), torch.nan, device=own_device())
    dist.all_gather_into_tensor(gathered, tensor)
    backend._set_enable_nan_check(False)
    lost = torch.full((4,), torch.nan, device=own_device())
    dist.all_reduce(lost)
    return gathered.tolist(), lost.isnan().all().item()


def test_what_is_received_may_have_been_nan(tmp_path):
    with ranks_with(tmp_path) as ranks:
        assert ranks.call(receive_into_nan, True) == [([1.0] * 8, True)] * 2


# ---- the registry of works -----------------------------------------------------------------------


def count_registered():
    module.set_device(own_device())
    count = torch._C._distributed_c10d._get_work_registry_size
    reduce = functools.partial(dist.all_reduce, async_op=True)
    with _functional_collectives.allow_inflight_collective_as_graph_input_ctx():
        work = reduce(torch.ones(4, device=own_device()))
        other = reduce(torch.ones(4, device=own_device()))
        counts = [count()]
        work.wait()
        counts.append(count())
        other.wait()
        counts.append(count())
    return counts


def test_a_work_leaves_the_registry_when_it_is_waited_for(tmp_path):
    with ranks_with(tmp_path) as ranks:
        assert ranks.call(count_registered) == [[2, 1, 0]] * 2
