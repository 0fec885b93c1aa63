"""Memory pools: allocations in a pool share no memory with others."""

import gc
import threading

import pytest
import torch
from offered import needs_statistics_of_pools

from device import DEVICE, module

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_cached():
    gc.collect()
    module.init()
    module.empty_cache()


def allocate(nbytes, device=DEVICE):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def is_in(tensor, segments):
    address = tensor.untyped_storage().data_ptr()
    return any(
        each["address"] <= address < each["address"] + each["total_size"] for each in segments
    )


def test_ids_are_those_of_pools_that_users_made():
    first, second = module.MemPool(), module.MemPool()
    assert first.id[0] == second.id[0] == 0
    assert first.id[1] < second.id[1]
    assert first.allocator is None


def test_tensors_of_a_pool_lie_in_its_segments():
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        inside = [allocate(1000), allocate(3 * MIB)]
    outside = [allocate(1000), allocate(3 * MIB)]
    segments = pool.snapshot()
    assert {segment["segment_pool_id"] for segment in segments} == {pool.id}
    assert all(is_in(tensor, segments) for tensor in inside)
    assert not any(is_in(tensor, segments) for tensor in outside)
    assert module.memory_snapshot(pool.id) == segments
    assert all(is_in(tensor, module.memory_snapshot()) for tensor in inside + outside)


def test_results_of_operators_come_from_the_pool():
    tensor = torch.ones(MIB, device=DEVICE)
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        inside = tensor + 1
    outside = tensor + 1
    assert is_in(inside, pool.snapshot())
    assert not is_in(outside, pool.snapshot())
    assert torch.equal(inside, outside)


def test_inner_pool_is_the_one_that_counts():
    pools = [module.MemPool() for _ in range(3)]
    held = []
    with module.use_mem_pool(pools[0]):
        held.append(allocate(20 * MIB))
        with module.use_mem_pool(pools[1]):
            held.append(allocate(22 * MIB))
            with module.use_mem_pool(pools[2]):
                held.append(allocate(24 * MIB))
            held.append(allocate(26 * MIB))
        held.append(allocate(28 * MIB))
    reserved = [sum(each["total_size"] for each in pool.snapshot()) // MIB for pool in pools]
    assert reserved == [48, 48, 24]


def test_use_count_is_how_many_hold_the_pool():
    pool = module.MemPool()
    assert pool.use_count() == 1
    with module.use_mem_pool(pool):
        assert pool.use_count() == 2
        tensor = allocate(1000)
    assert pool.use_count() == 1
    assert tensor.device.type == DEVICE


def test_pool_is_left_when_its_block_raises():
    pool = module.MemPool()
    with pytest.raises(KeyError), module.use_mem_pool(pool):
        raise KeyError
    tensor = allocate(1000)
    assert not is_in(tensor, pool.snapshot())
    assert pool.use_count() == 1


def test_other_devices_and_threads_go_on_as_they_are():
    pool = module.MemPool()
    made = []
    with module.use_mem_pool(pool, device=1):
        thread = threading.Thread(target=lambda: made.append(allocate(1000, f"{DEVICE}:1")))
        thread.start()
        thread.join()
        on_first = allocate(1000, f"{DEVICE}:0")
        on_second = allocate(1000, f"{DEVICE}:1")
    segments = pool.snapshot()
    assert not is_in(made[0], segments) and not is_in(on_first, segments)
    assert is_in(on_second, segments)
    assert {segment["device"] for segment in segments} == {1}


def test_free_memory_of_a_pool_is_used_by_the_pool_alone():
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        tensor = allocate(5 * MIB)
    address = tensor.data_ptr()
    del tensor
    other = allocate(5 * MIB)
    assert other.data_ptr() != address
    with module.use_mem_pool(pool):
        assert allocate(5 * MIB).data_ptr() == address


def test_tensors_outlive_their_pool():
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        tensor = torch.arange(MIB, device=DEVICE)
    reserved = module.memory_reserved()
    del pool
    module.empty_cache()
    assert module.memory_reserved() == reserved
    assert tensor.sum().item() == MIB * (MIB - 1) // 2
    del tensor
    module.empty_cache()
    assert module.memory_reserved() <= reserved - 8 * MIB


def test_memory_of_a_pool_is_released_with_it():
    before = module.memory_reserved()
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        allocate(5 * MIB)
    assert module.memory_reserved() == before + 20 * MIB
    module.empty_cache()
    assert module.memory_reserved() == before + 20 * MIB
    del pool
    assert module.memory_reserved() == before


@needs_statistics_of_pools
def test_statistics_have_the_reserved_bytes_of_pools():
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        tensor = allocate(5 * MIB)
    name = "reserved_bytes_by_private_pools"
    flat = f"{name}.0_{pool.id[1]}.all"
    stats = module.memory_stats()
    assert stats[f"{flat}.current"] == stats[f"{flat}.peak"] == 20 * MIB
    assert stats[f"{flat}.allocated"] == 20 * MIB and stats[f"{flat}.freed"] == 0
    nested = module.memory_stats_as_nested_dict()[name][pool.id]
    assert nested["large_pool"]["current"] == 20 * MIB and nested["small_pool"]["current"] == 0
    del tensor, pool
    stats = module.memory_stats()
    assert stats[f"{flat}.current"] == 0 and stats[f"{flat}.freed"] == 20 * MIB
    assert stats[f"{flat}.peak"] == 20 * MIB
    module.reset_peak_memory_stats()
    assert module.memory_stats()[f"{flat}.peak"] == 0


def test_pool_can_help_out_when_memory_runs_out(python):
    program = """
        import torch
        from device import DEVICE, module
        def allocate(megabytes):
            return torch.empty(megabytes << 20, dtype=torch.uint8, device=DEVICE)
        pool = module.MemPool(use_on_oom={})
        with module.use_mem_pool(pool):
            allocate(40)
        try:
            tensor = allocate(40)
            print("served", module.memory_stats()["num_ooms"])
        except torch.OutOfMemoryError as error:
            print(str(error).rpartition("Of the")[2])
        """
    small = {"OPENREG_DEVICE_MEMORY": "64M"}
    assert python(program.format(True), **small).stdout == "served 0\n"
    example, variable = "MemPool", "PYTORCH_ALLOC_CONF"
    if DEVICE == "cuda":
        example, variable = "CUDA Graphs", "PYTORCH_CUDA_ALLOC_CONF"
    assert python(program.format(False), **small).stdout.startswith(
        " allocated memory 40.00 MiB is allocated by PyTorch, with 40.00 MiB allocated in private "
        f"pools (e.g., {example}), and 0 bytes is reserved by PyTorch but unallocated. If reserved "
        f"but unallocated memory is large try setting {variable}=expandable_segments:True to avoid "
        "fragmentation."
    )


def test_segments_of_a_pool_may_be_left_whole():
    """Each block is a segment, and requests that are not larger reuse it whole."""
    pool = module.MemPool(no_split=True)
    before = module.memory_allocated()
    with module.use_mem_pool(pool):
        small, other, large = allocate(1000), allocate(1000), allocate(3 * MIB)
        sizes = [(each["total_size"], len(each["blocks"])) for each in pool.snapshot()]
        assert sorted(sizes) == [(2 * MIB, 1), (2 * MIB, 1), (20 * MIB, 1)]
        assert module.memory_allocated() - before == 24 * MIB
        address = large.data_ptr()
        del large, small, other
        shorter = allocate(2 * MIB + 1)
    assert shorter.data_ptr() == address
    assert [len(each["blocks"]) for each in pool.snapshot()] == [1, 1, 1]


def test_invalid_allocators_and_devices_are_refused():
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        module.MemPool(object())
    nowhere = module.use_mem_pool(module.MemPool(), device=7)
    with pytest.raises(RuntimeError, match="invalid device ordinal"), nowhere:
        pass
