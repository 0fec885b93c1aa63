"""The behaviour of pools of CUDA's allocator: which pool serves a request, and when.

Like `test_cuda_expectations`, for `MemPool`. `DEVICE` is the only place that names the device.
"""

import threading

import pytest
import torch

from device import DEVICE, MIB, allocate, limit_to, memory, module

pytestmark = pytest.mark.usefixtures("fresh_memory")


@pytest.fixture(params=["expandable_segments:False", "expandable_segments:True"])
def either_kind_of_segments(request):
    memory._set_allocator_settings(request.param)
    return request.param.endswith("True")


def reserved_by(pool):
    return sum(segment["total_size"] for segment in pool.snapshot())


def blocks_of(pool):
    return [block for segment in pool.snapshot() for block in segment["blocks"]]


def run_in_threads(functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- segments ------------------------------------------------------------------------------------


def test_a_mebibyte_fits_twice_in_a_segment_of_a_pool():
    pool = module.MemPool()
    assert (pool.allocator, pool.use_count()) == (None, 1)
    held = []
    for segments in (1, 1, 2):
        held.append(allocate(MIB))  # in the default pool, so it does not count here
        with module.use_mem_pool(pool):
            held.append(allocate(MIB))
            assert pool.use_count() == 2
        assert len(pool.snapshot()) == segments
    assert pool.use_count() == 1


def test_unsplit_pool_has_more_segments_and_fewer_blocks():
    split, whole = module.MemPool(), module.MemPool(no_split=True)
    held = []
    for _ in range(2):
        for pool in (split, whole):
            with module.use_mem_pool(pool):
                held.append(allocate(4 * MIB))
    assert (len(split.snapshot()), len(whole.snapshot())) == (1, 2)
    assert (len(blocks_of(split)), len(blocks_of(whole))) == (3, 2)
    assert [block["size"] for block in blocks_of(whole)] == [20 * MIB] * 2


def test_each_level_of_nested_pools_allocates_in_its_own(either_kind_of_segments):
    pools = [module.MemPool() for _ in range(3)]
    held = []

    def enter(level):
        with module.use_mem_pool(pools[level]):
            held.append(allocate(80 * MIB))
            if level < 2:
                enter(level + 1)
                held.append(allocate(80 * MIB))

    enter(0)
    assert [reserved_by(pool) // MIB for pool in pools] == [160, 160, 80]
    segments = [len(memory.memory_snapshot(pool.id)) for pool in pools]
    assert segments == ([1, 1, 1] if either_kind_of_segments else [2, 2, 1])


def test_segments_of_pools_are_expandable_too():
    memory._set_allocator_settings("expandable_segments:True")
    reserved = module.memory_reserved()
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        inside = allocate(30 * MIB)
        gone = allocate(30 * MIB)
    outside = allocate(30 * MIB)
    (segment,) = pool.snapshot()
    assert (segment["is_expandable"], segment["total_size"]) == (True, 60 * MIB)
    (other,) = [
        each
        for each in module.memory_snapshot()
        if each["is_expandable"] and each["segment_pool_id"] == (0, 0)
    ]
    assert other["total_size"] == 40 * MIB
    assert inside.device == outside.device == gone.device
    del gone, pool
    assert module.memory_reserved() == reserved + 80 * MIB  # whole pages of free memory
    del inside, outside
    module.empty_cache()
    assert module.memory_reserved() == reserved


def test_pool_and_its_memory_may_go_in_any_order(either_kind_of_segments):
    reserved = module.memory_reserved()
    for pool_first in (True, False):
        pool = module.MemPool()
        outside = allocate(4 * MIB)
        with module.use_mem_pool(pool):
            inside = allocate(4 * MIB)
        if pool_first:
            del pool
        del inside, outside
        if not pool_first:
            del pool
        assert module.memory_reserved() >= reserved + 20 * MIB  # in the default pool
        module.empty_cache()
        assert module.memory_reserved() == reserved


# ---- out of memory -------------------------------------------------------------------------------


def test_only_the_pool_that_offers_it_helps_out():
    limit_to(80 * MIB)
    ordinary, offered = module.MemPool(), module.MemPool(use_on_oom=True)
    with module.use_mem_pool(ordinary):
        first = allocate(40 * MIB)
    with module.use_mem_pool(offered):
        second = allocate(40 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        allocate(40 * MIB)  # both are allocated
    address = second.data_ptr()
    del first, second
    helped = allocate(30 * MIB)
    assert helped.data_ptr() == address
    with pytest.raises(torch.OutOfMemoryError):
        allocate(30 * MIB)  # the free memory of the other pool is reserved for it
    del helped
    with module.use_mem_pool(offered):
        assert allocate(20 * MIB).data_ptr() == address
    assert [reserved_by(pool) // MIB for pool in (ordinary, offered)] == [40, 40]


def test_expandable_segments_of_a_pool_do_not_help_out():
    """CUDA skips them, though they would fit."""
    memory._set_allocator_settings("expandable_segments:True")
    limit_to(80 * MIB)
    pool = module.MemPool(use_on_oom=True)
    with module.use_mem_pool(pool):
        allocate(40 * MIB)
    ooms = module.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError):
        allocate(60 * MIB)
    kept = allocate(40 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        allocate(30 * MIB)
    assert module.memory_stats()["num_ooms"] == ooms + 2
    assert kept.nbytes == reserved_by(pool) == 40 * MIB


def test_pools_that_are_gone_do_not_help_out():
    limit_to(40 * MIB)
    for _ in range(10):
        gone = module.MemPool(use_on_oom=True)
        with module.use_mem_pool(gone):
            allocate(40 * MIB)
        del gone
    pool = module.MemPool(use_on_oom=True)
    with module.use_mem_pool(pool):
        allocate(40 * MIB)
    halves = [allocate(20 * MIB), allocate(20 * MIB)]
    (segment,) = pool.snapshot()
    assert [block["state"] for block in segment["blocks"]] == ["active_allocated"] * 2
    addresses = [block["address"] for block in segment["blocks"]]
    assert sorted(half.data_ptr() for half in halves) == addresses


# ---- threads -------------------------------------------------------------------------------------


def test_pools_made_by_several_threads_have_names_of_their_own():
    ids = []
    run_in_threads([lambda: ids.append(module.MemPool().id)] * 4)
    assert len(set(ids)) == 4


def test_emptying_the_cache_inside_of_a_pool_leaves_its_segments():
    pools = [module.MemPool() for _ in range(4)]

    def use(pool):
        with module.use_mem_pool(pool):
            torch.randn(4, device=DEVICE)
            module.empty_cache()

    run_in_threads([lambda pool=pool: use(pool) for pool in pools])
    assert [len(pool.snapshot()) for pool in pools] == [1] * 4


def test_other_thread_allocates_in_the_default_pool_meanwhile(python):
    """Two of 1 MiB outside fill one segment; the one inside is free again."""
    result = python(
        f"""
        import threading
        import torch
        module = torch.{DEVICE}
        def allocate():
            return torch.empty(1 << 20, dtype=torch.int8, device={DEVICE!r})
        entered, allocated, segments = threading.Event(), threading.Event(), []
        def inside():
            pool = module.MemPool()
            outside = allocate()
            with module.use_mem_pool(pool):
                allocate()
                entered.set()
                allocated.wait()
        def beside():
            entered.wait()
            tensor = allocate()
            segments.extend(module.memory._snapshot()["segments"])
            allocated.set()
        threads = [threading.Thread(target=each) for each in (inside, beside)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for segment in sorted(segments, key=lambda each: each["segment_pool_id"]):
            print(segment["segment_pool_id"] == (0, 0), segment["active_size"])
        """
    )
    assert result.stdout == "True 2097152\nFalse 0\n"
