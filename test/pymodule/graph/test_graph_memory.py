"""A graph's memory: a private pool that lasts until reset and that graphs may share."""

import ctypes
import gc
import threading

import torch
from torch_openreg import _C

from device import DEVICE, memory, module

MIB = 1 << 20


def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=DEVICE)


def capture(function, **options):
    graph = module.CUDAGraph()
    with module.graph(graph, **options):
        result = function()
    return graph, result


def test_tensors_made_in_a_capture_are_in_the_graphs_pool():
    x = tensor(4)
    graph, y = capture(lambda: x + 1)
    segments = memory.memory_snapshot()
    pools = {
        tuple(each["segment_pool_id"])
        for each in segments
        if each["address"] <= y.data_ptr() < each["address"] + each["total_size"]
    }
    assert pools == {tuple(graph.pool())}


def test_a_pool_is_released_when_its_graph_is_reset():
    module.synchronize()
    gc.collect()
    module.empty_cache()
    before = module.memory_reserved()
    graph, y = capture(lambda: (tensor(8) + 1) * 2)
    module.empty_cache()
    kept = module.memory_reserved()
    assert kept >= before + 16 * MIB
    del y
    module.empty_cache()
    assert module.memory_reserved() == kept  # a replay writes there
    graph.reset()
    module.empty_cache()
    assert module.memory_reserved() == before


def _active_blocks():
    stats = module.memory_stats()
    return stats["active.all.current"], stats["active_bytes.all.current"]


def test_a_graph_keeps_a_seed_and_an_offset_for_each_generator():
    """PyTorch keeps them in two tensors on the default stream, from the capture to the reset."""
    x = torch.zeros(1, device=DEVICE)
    before = _active_blocks()
    graph = module.CUDAGraph()
    for seed in range(3):
        graph.register_generator_state(torch.Generator(DEVICE).manual_seed(seed))
    assert _active_blocks() == before
    with module.graph(graph):
        x.add_(1)
    assert _active_blocks() == (before[0] + 4 * 2, before[1] + 4 * 2 * 512)
    graph.replay()
    graph.reset()
    assert _active_blocks() == before


def test_graphs_of_one_pool_share_its_memory():
    x = tensor(32)
    first, y = capture(lambda: (x + 1) * 2)
    reserved = module.memory_reserved()
    second, z = capture(lambda: (x + 3) * 4, pool=first.pool())
    assert second.pool() == first.pool()
    assert y.data_ptr() != z.data_ptr()
    assert module.memory_reserved() <= reserved + 32 * MIB
    alone = module.memory_reserved()
    third, w = capture(lambda: (x + 3) * 4)
    assert module.memory_reserved() >= alone + 64 * MIB
    for graph in (first, second, third):
        graph.replay()
    x.fill_(1)
    for graph in (first, second, third):
        graph.replay()
    module.synchronize()
    assert y.eq(4).all() and z.eq(16).all() and w.eq(16).all()


def test_a_second_graph_takes_the_free_memory_of_the_first():
    """As on CUDA, blocks belong to a stream: only captures on the same stream share them."""
    stream, other = module.Stream(), module.Stream()
    first, y = capture(lambda: tensor(32).fill_(1), stream=stream)
    address, reserved = y.data_ptr(), module.memory_reserved()
    del y
    second, z = capture(lambda: tensor(32).fill_(2), pool=first.pool(), stream=stream)
    assert (z.data_ptr(), module.memory_reserved()) == (address, reserved)
    del z
    third, w = capture(lambda: tensor(32).fill_(3), pool=first.pool(), stream=other)
    assert module.memory_reserved() == reserved + 32 * MIB
    for graph in (first, second, third):
        graph.replay()
    module.synchronize()
    assert w.eq(3).all()


def test_a_graph_belongs_to_the_device_of_its_stream():
    module.empty_cache()  # as the first capture does
    with module.device(1):
        x = torch.ones(3, device=f"{DEVICE}:1")
        reserved = module.memory_reserved(0), module.memory_reserved(1)
        graph, y = capture(lambda: (x + 1, tensor(32))[0], stream=module.Stream(1))
        shared, z = capture(lambda: x * 5, pool=graph.pool(), stream=module.Stream(1))
    assert module.memory_reserved(0) == reserved[0]
    assert module.memory_reserved(1) >= reserved[1] + 32 * MIB
    x.fill_(2)
    module.synchronize(1)
    with module.device(0):
        graph.replay()
        shared.replay()
        assert module.current_device() == 0
    module.synchronize(1)
    assert (y.tolist(), z.tolist()) == ([3] * 3, [10] * 3)


def test_devices_capture_at_the_same_time():
    both_capture, results = threading.Barrier(2), {}

    def work(index):
        module.set_device(index)
        x = torch.ones(3, device=DEVICE)
        graph = module.CUDAGraph()
        stream = module.Stream(index)
        with module.graph(graph, stream=stream, capture_error_mode="thread_local"):
            both_capture.wait(60)
            y = x + index
            both_capture.wait(60)
        x.fill_(10)
        module.synchronize(index)
        graph.replay()
        module.synchronize(index)
        results[index] = y.tolist()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [10] * 3, 1: [11] * 3}


def test_the_cache_is_kept_during_a_capture():
    errors = []

    def empty_cache():
        try:
            module.empty_cache()
        except RuntimeError as error:
            errors.append(error)

    graph = module.CUDAGraph()
    with module.graph(graph, stream=module.Stream(), capture_error_mode="thread_local"):
        inside = tensor(32).fill_(1)
        reserved = module.memory_reserved()
        thread = threading.Thread(target=empty_cache)
        thread.start()
        thread.join()
        assert module.memory_reserved() == reserved
    assert errors == [] and inside.numel() == 32 * MIB


def test_a_capture_writes_to_nothing_though_it_frees_its_inputs():
    """The dry run of a new operator uses host memory."""
    pool, size, weights = module.graph_pool_handle(), 1031, torch.ones(1, 1, 3, device=DEVICE)
    _C.begin_allocate_current_thread_to_pool(0, pool)
    inputs = [torch.full((size,), 3.0, device=DEVICE)]
    _C.end_allocate_to_pool(0, pool)

    def step():
        (total, x) = inputs[0].sum(), inputs.pop().new_zeros(1, 1, size)
        return total, torch.conv1d(x, weights), x.cumsum(2), x.sort().values

    graph, (total, *_) = capture(step, pool=pool)
    _C.release_pool(0, pool)
    graph.replay()
    assert total.item() == 3 * size


def test_a_pool_handle_exists_before_a_graph():
    handle = module.graph_pool_handle()
    graph, _ = capture(lambda: tensor(1).fill_(1), pool=handle)
    assert tuple(graph.pool()) == tuple(handle)


def test_ten_thousand_replays_allocate_no_memory():
    x = torch.zeros(100, device=DEVICE)
    graph, _ = capture(lambda: x.add_(torch.rand(100, device=DEVICE)).sum())
    for _ in range(100):
        graph.replay()
    module.synchronize()
    figures = dict(module.memory_stats())
    before = _bytes_of_the_host()
    for _ in range(10_000):
        graph.replay()
    module.synchronize()
    assert dict(module.memory_stats()) == figures
    assert _bytes_of_the_host() - before < 10_000 * 8  # less than one pointer per replay


class _MallocInfo(ctypes.Structure):
    """The result of mallinfo2 of the C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _bytes_of_the_host():
    """Return the bytes that malloc has allocated; 0 with another allocator, as a sanitizer's."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def test_a_block_that_another_stream_uses_waits_for_the_end_of_captures():
    stream = module.Stream()
    x = tensor(3)
    address = x.data_ptr()
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        x.fill_(1)
    x.record_stream(stream)
    module.synchronize()
    with module.graph(module.CUDAGraph(), capture_error_mode="relaxed"):
        tensor(1).fill_(0)
        del x
        with module.stream(module.default_stream()):
            other = tensor(3)
    assert other.data_ptr() != address
    del other
    module.synchronize()
    again = [tensor(3), tensor(3)]
    assert address in [each.data_ptr() for each in again]
