"""Groups: their names, devices, splitting, and how they end."""

import pytest
import torch
import torch.distributed as dist
from modes import cuda_only, openreg_only
from peers import kept
from ranks import BACKEND, GROUP_CLASS, own_device, ranks_of

from device import DEVICE, module

pytestmark = pytest.mark.own_processes


def sums(devices):
    module.set_device(own_device())
    tensors = [torch.ones(2, device=own_device() if each == DEVICE else each) for each in devices]
    for tensor in tensors:
        dist.all_reduce(tensor)
    backend = dist.group.WORLD._get_backend(own_device())
    return [tensor.tolist() for tensor in tensors], isinstance(backend, GROUP_CLASS)


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        (BACKEND, [DEVICE]),
        (f"cpu:gloo,{DEVICE}:{BACKEND}", ["cpu", DEVICE]),
        pytest.param(None, ["cpu", DEVICE], marks=openreg_only("PyTorch serves CUDA alone")),
        (None, [DEVICE]),
    ],
)
def test_names(tmp_path, name, devices):
    with ranks_of(tmp_path, backend=name) as ranks:
        assert ranks.call(sums, devices) == [([[2, 2]] * len(devices), True)] * 2


def name_of_backend():
    return dist.group.WORLD._get_backend(own_device()).name(), dist.get_backend()


def test_name(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        assert ranks.call(name_of_backend) == [(BACKEND, BACKEND)] * 2


def train():
    """As every program of several processes does."""
    module.set_device(own_device())
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model = torch.nn.parallel.DistributedDataParallel(model.to(own_device()))
    for _ in range(3):
        model(torch.ones(2, 4, device=own_device()) * dist.get_rank()).sum().backward()
    return [parameter.grad.sum().item() for parameter in model.parameters()]


@pytest.mark.parametrize("name", [BACKEND, f"cpu:gloo,{DEVICE}:{BACKEND}", None])
def test_data_parallel(tmp_path, name):
    with ranks_of(tmp_path, backend=name) as ranks:
        first, second = ranks.call(train)
        assert first == second


def divide():
    """Split by ranks, each half and all."""
    device, rank = own_device(), dist.get_rank()
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    new = dist.new_group([0, 3])
    tensor, other = torch.full((2,), float(rank), device=device), torch.ones(1, device=device)
    dist.all_reduce(tensor, group=half)
    if rank in (0, 3):
        dist.all_reduce(other, group=new)
        dist.destroy_process_group(new)
    dist.destroy_process_group(half)
    dist.all_reduce(other)
    return tensor[0].item(), other.item()


def test_groups_that_are_made_of_others(tmp_path):
    with ranks_of(tmp_path, 4, bound=True, devices=4, backend=BACKEND) as ranks:
        assert ranks.call(divide) == [(1, 6), (1, 6), (5, 6), (5, 6)]


def many():
    module.set_device(own_device())
    groups = [dist.new_group() for _ in range(6)]
    tensors = [torch.full((2,), float(index), device=own_device()) for index in range(6)]
    works = [
        dist.all_reduce(tensor, group=group, async_op=True)
        for tensor, group in zip(tensors, groups, strict=True)
    ]
    for work in reversed(works):
        work.wait()
    for group in groups[::2]:
        dist.destroy_process_group(group)
    return [tensor[0].item() for tensor in tensors]


def test_many_groups_side_by_side(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        assert ranks.call(many) == [[0, 2, 4, 6, 8, 10]] * 2


def keep_store(path):
    kept["rank"], kept["store"] = dist.get_rank(), dist.FileStore(path, 2)
    dist.destroy_process_group()


def again():
    """All use one store: a new group must not see keys of the last one."""
    dist.init_process_group(BACKEND, store=kept["store"], rank=kept["rank"], world_size=2)
    tensor = torch.ones(2, device=own_device())
    dist.all_reduce(tensor)
    dist.barrier(device_ids=[own_device().index])
    dist.destroy_process_group()
    return tensor.tolist()


def join_again(path):
    dist.init_process_group(BACKEND, store=dist.FileStore(path, 2), rank=kept["rank"], world_size=2)


def test_groups_one_after_the_other_with_one_store(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        ranks.call(keep_store, str(tmp_path / "other"))
        for _ in range(3):
            assert ranks.call(again) == [[2, 2]] * 2
        ranks.call(join_again, str(tmp_path / "last"))


def as_threads():
    """Two ranks of one process, each a thread with a device."""
    import threading

    store, results = dist.HashStore(), {}

    def run(rank):
        device = torch.device(DEVICE, rank)
        options = GROUP_CLASS.Options()
        group = GROUP_CLASS(dist.PrefixStore("threads", store), rank, 2, options)
        tensor = torch.full((4,), float(rank + 1), device=device)
        for _ in range(20):
            group.allreduce([tensor]).wait()
            tensor /= 2
        group.barrier().wait()
        results[rank] = tensor.tolist()
        group.shutdown()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_ranks_are_threads():
    assert as_threads() == {0: [1.5] * 4, 1: [1.5] * 4}


LEFT = f"""
import torch, torch.distributed as dist
dist.init_process_group("{BACKEND}", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.ones(4, device="{DEVICE}")
work = dist.all_reduce(tensor, async_op=True)
print("end")
"""


def test_program_that_leaves_its_group(python):
    result = python(LEFT)
    assert result.stdout == "end\n"


ALONE = f"""
import os, torch, torch.distributed as dist, threading
store = dist.HashStore()
group = dist.{GROUP_CLASS.__name__}
def come():
    mine = group(store, 1, 2, group.Options())
    mine.eager_connect_single_device(torch.device("{DEVICE}", 1))
    keep.append(mine)
keep = []
thread = threading.Thread(target=come)
thread.start()
mine = group(store, 0, 2, group.Options())
tensor = torch.ones(4, device="{DEVICE}:0")
mine.eager_connect_single_device(tensor.device)
thread.join()
work = mine.allreduce([tensor])
print("end")
"""


def test_program_ends_though_its_collective_waits_for_another_rank(python):
    result = python(ALONE)
    assert result.stdout == "end\n"


# ---- splitting and shrinking ---------------------------------------------------------------------


def count_splits():
    backend = dist.group.WORLD._get_backend(own_device())
    counts = [backend.comm_split_count()]
    group = dist.new_group([0])
    counts.append(backend.comm_split_count())
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1, device=own_device()), group=group)
        counts.append(backend.comm_split_count())
    return counts


@cuda_only("PyTorch splits groups of NCCL alone")
def test_splits_are_counted_on_all_ranks(tmp_path):
    with ranks_of(tmp_path, 2, bound=True, devices=2, backend=BACKEND) as ranks:
        assert ranks.call(count_splits) == [[0, 1, 1], [0, 1]]


def shrink_backend(excluded, flags):
    module.set_device(own_device())
    backend = dist.group.WORLD._get_backend(own_device())
    backend.options.is_high_priority_stream = True
    assert backend.supports_shrinking
    smaller = backend.shrink(excluded, flags)
    kept["smaller"] = smaller
    tensor = torch.full((3,), float(dist.get_rank()), device=own_device())
    smaller.allreduce([tensor]).wait()
    return smaller.rank(), smaller.size(), smaller.options.is_high_priority_stream, tensor.tolist()


@pytest.mark.parametrize("flags", [0, 1])
def test_shrinking_leaves_a_group_without_the_excluded_ranks(tmp_path, flags):
    with ranks_of(tmp_path, 3, bound=True, devices=3, backend=BACKEND) as ranks:
        ranks.peers[1].kill()
        remaining = [ranks.peers[0], ranks.peers[2]]
        for peer in remaining:
            peer.start(shrink_backend, [1], flags)
        assert [peer.finish() for peer in remaining] == [
            (0, 2, True, [2.0] * 3),
            (1, 2, True, [2.0] * 3),
        ]
        ranks.has_failed = True


def refused_shrinks():
    backend = dist.group.WORLD._get_backend(own_device())
    messages = []
    for excluded in ([], [dist.get_rank()], [7]):
        with pytest.raises(ValueError) as raised:
            backend.shrink(excluded)
        messages.append(str(raised.value).splitlines()[0])
    return messages


def test_shrinking_needs_other_ranks_of_the_group(tmp_path):
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        none, own, missing = ranks.call(refused_shrinks)[0]
        assert "exclude at least one rank, and not the caller" in none
        assert "Rank 0 cannot shrink a group of 2 ranks by the ranks 0:" in own
        assert missing == "Invalid rank 7 for group size 2"


def shrink_default_group():
    device = own_device()  # the number of the rank changes, but not its device
    module.set_device(device)
    if dist.get_rank() == 1:
        dist.destroy_process_group()
        return None
    group = dist.shrink_group([1])
    tensor = torch.full((3,), 5.0, device=device)
    dist.all_reduce(tensor)
    return group.size(), dist.get_world_size(), dist.get_rank(), tensor.tolist()


@cuda_only("PyTorch shrinks groups of NCCL alone")
def test_the_default_group_can_be_shrunk(tmp_path):
    with ranks_of(tmp_path, 3, bound=True, devices=3, backend=BACKEND) as ranks:
        first, excluded, second = ranks.call(shrink_default_group)
        ranks.has_failed = True
        assert excluded is None
        assert first == (2, 2, 0, [10.0] * 3)
        assert second == (2, 2, 1, [10.0] * 3)
