"""Symmetric memory: allocations, the rendezvous, access to other ranks, and failures."""

import datetime
import os
import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from ranks import own_device, ranks_of
from symmetric import begin, failure, met
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory

from device import DEVICE, module

pytestmark = pytest.mark.own_processes

SIZE = 3


# ---- allocations ---------------------------------------------------------------------------------


def facts():
    tensor, handle = met(4, 5)
    plain = torch.empty(4, device=own_device())
    pads, buffers = handle.signal_pad_ptrs, handle.buffer_ptrs
    return {
        "size": tuple(tensor.shape) == (4, 5) and tensor.is_contiguous(),
        "device": tensor.device == own_device() == handle.device,
        "rank": handle.rank == dist.get_rank() and handle.world_size == dist.get_world_size(),
        "buffers": len(set(buffers)) == 3 and buffers[handle.rank] == tensor.data_ptr(),
        "pads": len(set(pads)) == 3 and not set(pads) & set(buffers),
        "on device": handle.buffer_ptrs_dev != 0 and handle.signal_pad_ptrs_dev != 0,
        "bytes": handle.buffer_size == 80 and handle.offset == 0,
        "multicast": handle.multicast_ptr == 0
        and not handle.has_multicast_support(
            getattr(DeviceType, "CUDA" if DEVICE == "cuda" else "PrivateUse1"), handle.rank
        ),
        "is symmetric": symm_mem.is_symm_mem_tensor(tensor),
        "plain tensor is not symmetric": not symm_mem.is_symm_mem_tensor(plain),
        "plain tensor has no rendezvous": symm_mem.rendezvous(plain, dist.group.WORLD) is None,
    }


def test_facts_of_a_handle(symmetric_ranks):
    for answer in symmetric_ranks.call(facts):
        assert [name for name, holds in answer.items() if not holds] == []


def backend():
    own = symm_mem.get_backend(own_device())
    symm_mem.set_backend(own)
    return own, symm_mem.get_backend("cpu"), failure(symm_mem.set_backend, "NVSHMEM")


def test_backend(symmetric_ranks):
    own, of_cpu, refused = symmetric_ranks.call(backend)[0]
    assert own == DEVICE.upper()
    assert of_cpu is None
    assert refused[0] == "RuntimeError"


def enable():
    name = dist.group.WORLD.group_name
    before = symm_mem.is_symm_mem_enabled_for_group(name)
    symm_mem.enable_symm_mem_for_group(name)
    met(1)
    return before, symm_mem.is_symm_mem_enabled_for_group(name)


def test_groups_that_are_enabled(symmetric_ranks):
    assert symmetric_ranks.call(enable) == [(False, True)] * 3


def take_back():
    """An allocation first frees memory that other ranks have released."""
    dist.barrier()
    symm_mem.empty(1, device=own_device())


def memory_it_takes():
    take_back()
    before = module.memory_allocated(), module.mem_get_info()[0]
    tensor = symm_mem.empty(3 << 20, dtype=torch.uint8, device=own_device())
    during = module.memory_allocated(), module.mem_get_info()[0]
    del tensor
    after = module.memory_allocated(), module.mem_get_info()[0]
    return [one - before[0] for one in (during[0], after[0])], [
        before[1] - one for one in (during[1], after[1])
    ]


def test_memory_is_the_devices_and_not_the_allocators(symmetric_ranks):
    """As with cuMemCreate, memory comes in units of 2 MiB, which include the signal pad."""
    for counted, taken in symmetric_ranks.call(memory_it_takes):
        assert counted == [0, 0]
        assert taken == [4 << 20, 0]


def meet_and_leave():
    take_back()
    begin_free = module.mem_get_info()[0]
    for _ in range(3):
        tensor, handle = met(3 << 20, dtype=torch.uint8)
        handle.barrier()
        module.synchronize()
        del tensor, handle
    take_back()
    return begin_free - module.mem_get_info()[0]


def test_memory_that_ranks_met_on_comes_back(symmetric_ranks):
    assert symmetric_ranks.call(meet_and_leave) == [0, 0, 0]


# ---- access to other ranks -----------------------------------------------------------------------


def read_each_other():
    tensor, handle = met(2, 3)
    tensor.fill_(dist.get_rank())
    handle.barrier()
    seen = [handle.get_buffer(rank, (3,), torch.float32, storage_offset=3) for rank in range(3)] + [
        handle.get_remote_tensor(rank, (2, 3), torch.float32) for rank in range(3)
    ]
    values = [each.cpu().unique().tolist() for each in seen]
    return values, [each.device == own_device() for each in seen]


def test_ranks_read_each_other(symmetric_ranks):
    assert symmetric_ranks.call(read_each_other) == [([[0], [1], [2]] * 2, [True] * 6)] * 3


def write_to_the_next():
    tensor, handle = met(4)
    tensor.zero_()
    handle.barrier()
    following = (handle.rank + 1) % 3
    handle.get_buffer(following, (4,), torch.float32).fill_(handle.rank + 1)
    handle.barrier()
    return tensor.tolist()


def test_ranks_write_to_each_other(symmetric_ranks):
    assert symmetric_ranks.call(write_to_the_next) == [[3] * 4, [1] * 4, [2] * 4]


def buffers_that_are_too_large():
    _, handle = met(4)
    return (
        failure(handle.get_buffer, 1, (5,), torch.float32),
        failure(handle.get_buffer, 3, (1,), torch.float32),
    )


def test_buffers_that_do_not_exist(symmetric_ranks):
    for too_large, no_rank in symmetric_ranks.call(buffers_that_are_too_large):
        assert "exceeds the allocated size" in too_large[1]
        assert no_rank is not None


def meet_again():
    tensor, handle = met(8)
    half = symm_mem.rendezvous(tensor[4:], dist.group.WORLD)
    again = symm_mem.rendezvous(tensor, dist.group.WORLD)
    other, other_handle = met(8)
    tensor.fill_(1)
    other.fill_(2)
    handle.barrier()
    peer = (handle.rank + 1) % 3
    return (
        handle.buffer_ptrs == again.buffer_ptrs == half.buffer_ptrs,
        other_handle.get_buffer(peer, (8,), torch.float32).tolist() == [2] * 8,
        handle.get_buffer(peer, (8,), torch.float32).tolist() == [1] * 8,
    )


def test_tensors_that_meet_again_and_several_tensors(symmetric_ranks):
    assert symmetric_ranks.call(meet_again) == [(True, True, True)] * 3


def meet_in_a_part():
    part = dist.new_group([0, 2])
    if dist.get_rank() == 1:
        return None
    tensor, of_part = met(4, group=part)
    tensor.fill_(dist.get_rank())
    of_part.barrier()
    values = [of_part.get_buffer(rank, (4,), torch.float32)[0].item() for rank in range(2)]
    of_part.barrier()
    module.synchronize()
    return of_part.rank, of_part.world_size, values


def test_groups_of_some_ranks(symmetric_ranks):
    assert symmetric_ranks.call(meet_in_a_part) == [(0, 2, [0, 2]), None, (1, 2, [0, 2])]


def meet_in_two_groups():
    others = dist.new_group([0, 1, 2])
    tensor, handle = met(4)
    other = symm_mem.rendezvous(tensor, others)
    tensor.fill_(dist.get_rank())
    other.barrier()
    handle.barrier()
    return [other.get_buffer(rank, (4,), torch.float32)[0].item() for rank in range(3)]


def test_one_tensor_in_two_groups(symmetric_ranks):
    assert symmetric_ranks.call(meet_in_two_groups) == [[0, 1, 2]] * 3


def allocate_persistently():
    arguments = (4,), (1,), torch.float32, own_device(), dist.group.WORLD.group_name
    allocate = _SymmetricMemory.empty_strided_p2p
    tensor = allocate(*arguments, alloc_id=7)
    address, handle = tensor.data_ptr(), _SymmetricMemory.rendezvous(tensor)
    while_it_lives = failure(allocate, *arguments, alloc_id=7)
    del tensor
    again = allocate(*arguments, alloc_id=7)
    buffers = _SymmetricMemory.rendezvous(again).buffer_ptrs
    return again.data_ptr() == address, buffers == handle.buffer_ptrs, while_it_lives[0]


def test_persistent_allocations(symmetric_ranks):
    assert symmetric_ranks.call(allocate_persistently) == [(True, True, "RuntimeError")] * 3


# ---- a rendezvous that fails ---------------------------------------------------------------------


def meet_with_other_sizes():
    tensor = symm_mem.empty(4 + dist.get_rank(), device=own_device())
    first = failure(symm_mem.rendezvous, tensor, dist.group.WORLD)
    return first, failure(met, 2)


def test_allocations_of_different_sizes(symmetric_ranks):
    """All ranks report it, and another rendezvous succeeds."""
    for (kind, sentence), later in symmetric_ranks.call(meet_with_other_sizes):
        assert kind == "DistBackendError"
        assert "16 bytes" in sentence
        assert later is None


def meet_alone(seconds):
    dist.group.WORLD._get_backend(own_device())
    store = dist.distributed_c10d._get_process_group_store(dist.group.WORLD)
    store.set_timeout(datetime.timedelta(seconds=seconds))
    if dist.get_rank() == 0:
        return failure(met, 2)
    return None


def test_rank_that_does_not_come(two_ranks):
    (kind, sentence), _ = two_ranks.call(meet_alone, 0.5)
    assert kind == "DistBackendError"
    for part in ("rank 0", "rank 1 of 2 did not join", "within 0.5 s"):
        assert part in sentence


def meet_without_group():
    tensor = symm_mem.empty(2, device=own_device())
    return failure(_SymmetricMemory.rendezvous, tensor)


def test_meeting_without_a_group(symmetric_ranks):
    for kind, sentence in symmetric_ranks.call(meet_without_group):
        assert kind == "RuntimeError"
        assert "group" in sentence


def name_host(place):
    os.environ["OPENREG_HOST"] = place


def test_ranks_on_several_hosts(tmp_path):
    with ranks_of(tmp_path, backend="gloo", prepare=name_host, places="ab") as ranks:
        ranks.call(begin)
        for kind, sentence in ranks.call(failure, met, 2):
            assert kind == "DistBackendError"
            assert "2 hosts" in sentence


def hide_others(place):
    os.environ["CUDA_VISIBLE_DEVICES" if DEVICE == "cuda" else "OPENREG_VISIBLE_DEVICES"] = place


def meet_on_the_only_device():
    tensor = symm_mem.empty(2, device=f"{DEVICE}:0")
    return failure(symm_mem.rendezvous, tensor, dist.group.WORLD)


def test_ranks_that_hide_their_devices_from_each_other(tmp_path):
    with ranks_of(tmp_path, backend="gloo", prepare=hide_others, places="01") as ranks:
        for kind, sentence in ranks.call(meet_on_the_only_device):
            assert kind == "DistBackendError"
            assert "VISIBLE_DEVICES hides" in sentence


def meet_on_one_device(allow):
    os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = allow
    tensor = symm_mem.empty(2, device=f"{DEVICE}:0")
    return failure(symm_mem.rendezvous, tensor, dist.group.WORLD)


def test_ranks_on_one_device(two_ranks):
    for kind, sentence in two_ranks.call(meet_on_one_device, "0"):
        assert kind == "DistBackendError"
        assert "overlapping devices" in sentence
    assert two_ranks.call(meet_on_one_device, "1") == [None, None]


# ---- memory pools --------------------------------------------------------------------------------


def use_a_pool():
    if DEVICE == "cuda":
        pool = symm_mem.get_mem_pool(own_device())
    else:
        pool = module.MemPool(symm_mem.get_mempool_allocator(own_device()), no_split=True)
    with module.use_mem_pool(pool):
        first = torch.full((1000,), dist.get_rank(), device=own_device())
        second = torch.full((1000,), dist.get_rank() + 10, device=own_device())
    outside = torch.ones(1000, device=own_device())
    handles = [symm_mem.rendezvous(each, dist.group.WORLD) for each in (first, second)]
    for handle in handles:
        handle.barrier()
    seen = [
        [handle.get_remote_tensor(rank, (1000,), torch.int64)[0].item() for rank in range(3)]
        for handle in handles
    ]
    return seen, [symm_mem.is_symm_mem_tensor(each) for each in (first, second, outside)]


def test_tensors_of_a_memory_pool(symmetric_ranks):
    expected = [[0, 1, 2], [10, 11, 12]], [True, True, False]
    assert symmetric_ranks.call(use_a_pool) == [expected] * 3


def offset_in_a_pool():
    pool = module.MemPool(symm_mem.get_mempool_allocator(own_device()))
    with module.use_mem_pool(pool):
        kept = torch.zeros(1024, device=own_device())
        tensor = torch.full((4,), float(dist.get_rank()), device=own_device())
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
    handle.barrier()
    values = [handle.get_remote_tensor(rank, (4,), torch.float32)[0].item() for rank in range(3)]
    summed = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", dist.group.WORLD.group_name)
    return handle.offset, values, summed.tolist(), kept.sum().item()


def test_tensors_that_share_an_allocation(symmetric_ranks):
    assert symmetric_ranks.call(offset_in_a_pool) == [(4096, [0, 1, 2], [3] * 4, 0)] * 3


# ---- ranks that are threads ----------------------------------------------------------------------


def meet_as_threads():
    """Each thread has its own groups, as in PyTorch's multi-threaded tests."""
    c10d = torch._C._distributed_c10d
    c10d._set_thread_isolation_mode(True)
    store, answers = dist.HashStore(), {}

    def run(rank):
        group = dist.ProcessGroup(store, rank, 2)
        c10d._register_process_group("threads", group)
        tensor = symm_mem.empty(2, device=torch.device(DEVICE, rank))
        handle = symm_mem.rendezvous(tensor, "threads")
        tensor.fill_(rank + 1)
        handle.barrier()
        answers[rank] = handle.get_buffer(1 - rank, (2,), torch.float32).tolist()
        handle.barrier()
        c10d._unregister_process_group("threads")

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    c10d._set_thread_isolation_mode(False)
    return answers


def test_threads_as_ranks():
    assert meet_as_threads() == {0: [2, 2], 1: [1, 1]}
