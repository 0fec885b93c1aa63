"""Memory: values computed by hand, running out, and recovering from that.

As in CUDA's caching allocator, blocks are multiples of 512 bytes, and requests of up to 1 MiB come
from the small pool. Memory is reserved in segments of 2 MiB, 20 MiB, or the size of the request.
"""

import gc
import re

import pytest
import torch

from device import DEVICE, NAME, module

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture(autouse=True)
def nothing_cached():
    """Start every test without memory, except that of tensors that outlive a test."""
    gc.collect()
    module.init()
    module.empty_cache()
    for index in (0, 1):
        module.reset_accumulated_memory_stats(index)
        module.reset_peak_memory_stats(index)


def allocate(nbytes, device=DEVICE):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


@pytest.mark.parametrize(
    ("requested", "held"),
    [(1, 512), (512, 512), (513, 1024), (4000, 4096), (MIB, MIB), (MIB + 1, MIB + 512)],
)
def test_allocated_memory_is_rounded_up_to_512_bytes(requested, held):
    before = module.memory_allocated()
    tensor = allocate(requested)
    assert module.memory_allocated() - before == held
    del tensor
    assert module.memory_allocated() == before


def test_empty_tensor_holds_nothing():
    before = module.memory_allocated()
    tensor = allocate(0)
    assert module.memory_allocated() == before
    assert tensor.data_ptr() == 0


@pytest.mark.parametrize(
    ("requested", "segment"),
    [(1, 2 * MIB), (MIB, 2 * MIB), (MIB + 1, 20 * MIB), (11 * MIB, 12 * MIB), (33 * MIB, 34 * MIB)],
)
def test_memory_is_reserved_in_the_segments_of_a_gpu(requested, segment):
    gc.collect()
    module.empty_cache()
    before = module.memory_reserved(1)
    tensor = allocate(requested, f"{DEVICE}:1")
    assert module.memory_reserved(1) - before == segment
    del tensor
    assert module.memory_reserved(1) - before == segment
    module.empty_cache()
    assert module.memory_reserved(1) == before


def test_freed_memory_is_used_again():
    first = allocate(5 * MIB)
    address = first.data_ptr()
    del first
    reserved = module.memory_reserved()
    second = allocate(5 * MIB)
    assert second.data_ptr() == address
    assert module.memory_reserved() == reserved


def test_statistics_of_three_requests_are_those_worked_out_by_hand():
    names = [
        f"{figure}.{pool}.{metric}"
        for figure in ("allocation", "allocated_bytes", "requested_bytes")
        for pool in ("all", "small_pool", "large_pool")
        for metric in ("current", "peak", "allocated", "freed")
    ]
    before = module.memory_stats(1)
    small = allocate(1000, f"{DEVICE}:1")
    large = allocate(3 * MIB, f"{DEVICE}:1")
    gone = allocate(513, f"{DEVICE}:1")
    del gone
    after = module.memory_stats(1)
    change = {name: after[name] - before[name] for name in names}
    assert small.device.type == DEVICE and large.device.type == DEVICE
    expected = {
        "allocation": {"all": (2, 3, 3, 1), "small_pool": (1, 2, 2, 1), "large_pool": (1, 1, 1, 0)},
        "allocated_bytes": {
            "all": (1024 + 3 * MIB, 2048 + 3 * MIB, 2048 + 3 * MIB, 1024),
            "small_pool": (1024, 2048, 2048, 1024),
            "large_pool": (3 * MIB, 3 * MIB, 3 * MIB, 0),
        },
        "requested_bytes": {
            "all": (1000 + 3 * MIB, 1513 + 3 * MIB, 1513 + 3 * MIB, 513),
            "small_pool": (1000, 1513, 1513, 513),
            "large_pool": (3 * MIB, 3 * MIB, 3 * MIB, 0),
        },
    }
    assert change == {
        f"{figure}.{pool}.{metric}": value
        for figure, pools in expected.items()
        for pool, values in pools.items()
        for metric, value in zip(("current", "peak", "allocated", "freed"), values, strict=True)
    }


def test_statistics_have_the_names_of_torch_cuda():
    figures = "allocation segment active inactive_split allocated_bytes reserved_bytes "
    figures += "active_bytes inactive_split_bytes requested_bytes"
    names = {
        f"{figure}.{pool}.{metric}"
        for figure in figures.split()
        for pool in ("all", "small_pool", "large_pool")
        for metric in ("current", "peak", "allocated", "freed")
    }
    names |= {"num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"}
    names |= {"num_sync_all_streams", "max_split_size"}
    names |= {
        f"{figure}.{metric}"
        for figure in ("oversize_allocations", "oversize_segments")
        for metric in ("current", "peak", "allocated", "freed")
    }
    stats = module.memory_stats()
    assert names <= set(stats)
    assert list(stats) == sorted(stats)


def test_nested_statistics_have_the_same_values():
    nested = module.memory_stats_as_nested_dict(f"{DEVICE}:1")
    flat = module.memory_stats(1)
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]
    assert nested["num_ooms"] == flat["num_ooms"]


def test_statistics_are_empty_before_first_use(python):
    result = python(
        """
        import torch
        from device import module
        print(module.memory_stats(), module.memory_stats_as_nested_dict())
        print(module.memory_allocated(), module.max_memory_reserved())
        module.empty_cache()
        print(module.is_initialized())
        """
    )
    assert result.stdout == "OrderedDict() {}\n0 0\nFalse\n"


def test_peak_is_kept_until_it_is_reset():
    before = module.memory_allocated()
    tensor = allocate(7 * MIB)
    del tensor
    assert module.max_memory_allocated() - before == 7 * MIB
    assert module.max_memory_reserved() >= before + 7 * MIB
    module.reset_peak_memory_stats()
    assert module.max_memory_allocated() == before


def test_accumulated_statistics_can_be_reset():
    del_me = allocate(100)
    del del_me
    assert module.memory_stats()["allocation.all.allocated"] >= 1
    module.reset_accumulated_memory_stats()
    stats = module.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 0


def test_devices_count_apart():
    before = [module.memory_allocated(index) for index in (0, 1)]
    tensor = allocate(1000, f"{DEVICE}:1")
    assert tensor.get_device() == 1
    assert module.memory_allocated(0) == before[0]
    assert module.memory_allocated(torch.device(f"{DEVICE}:1")) == before[1] + 1024


@pytest.mark.parametrize(
    "function",
    [
        module.memory_stats,
        module.memory_allocated,
        module.max_memory_reserved,
        module.reset_peak_memory_stats,
        module.reset_accumulated_memory_stats,
        module.mem_get_info,
        module.get_per_process_memory_fraction,
    ],
)
def test_device_that_does_not_exist_is_refused(function):
    for index in (2, 200, -1):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            function(index)
    with pytest.raises(ValueError, match=f"Expected a {DEVICE} device, but got: cpu"):
        function("cpu")


def test_free_memory_shrinks_by_what_is_reserved():
    free, total = module.mem_get_info()
    tensor = allocate(33 * MIB)
    assert tensor.device.type == DEVICE
    assert module.mem_get_info(f"{DEVICE}:0") == (free - 34 * MIB, total)


def test_views_allocate_nothing():
    tensor = allocate(4096)
    before = module.memory_stats()["allocation.all.allocated"]
    tensor[10:].view(-1)[:2].expand(3, 2).t()
    assert module.memory_stats()["allocation.all.allocated"] == before


def test_in_place_operators_hold_no_more_memory():
    tensor, other = allocate(4096).zero_(), allocate(4096).zero_()
    before = module.memory_allocated()
    tensor.add_(other).mul_(2).zero_()
    assert module.memory_allocated() == before


def test_no_memory_is_leaked_by_a_step_of_training():
    before = [module.memory_allocated(index) for index in (0, 1)]
    model = torch.nn.Linear(64, 64).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(8, 64, device=DEVICE)).square().mean().backward()
        optimizer.step()
    del model, optimizer
    gc.collect()
    assert [module.memory_allocated(index) for index in (0, 1)] == before


# A device of 64 MiB, for tests that use it up.
SMALL = {"OPENREG_DEVICE_MEMORY": "64M"}


def test_running_out_raises_in_the_words_of_cuda(python):
    result = python(
        """
        import torch
        from device import DEVICE, module
        held = torch.empty(30 << 20, dtype=torch.uint8, device=DEVICE)
        try:
            torch.empty(40 << 20, dtype=torch.uint8, device=DEVICE)
        except module.OutOfMemoryError as error:
            assert isinstance(error, RuntimeError)
            print(error)
        """,
        **SMALL,
    )
    assert re.match(
        rf"{NAME} out of memory\. Tried to allocate 40\.00 MiB\. GPU 0 has a total capacity of "
        r"64\.00 MiB of which 34\.00 MiB is free\. Including non-PyTorch memory, this "
        r"process has 30\.00 MiB memory in use\. "
        r"Of the allocated memory 30\.00 MiB is allocated by PyTorch, and 0 bytes is reserved by "
        r"PyTorch but unallocated\.",
        result.stdout,
    )


def test_program_goes_on_after_running_out(python):
    result = python(
        """
        import torch
        from device import DEVICE, module
        held = torch.ones(30 << 18, device=DEVICE)
        for _ in range(3):
            try:
                held @ torch.empty(40 << 20, dtype=torch.uint8, device=DEVICE)
            except torch.OutOfMemoryError:
                pass
        stats = module.memory_stats()
        print(stats["num_ooms"], stats["allocated_bytes.all.current"] >> 20, held.sum().item())
        del held
        print(torch.ones(40 << 18, device=DEVICE).sum().item())
        """,
        **SMALL,
    )
    assert result.stdout == f"3 30 {30 << 18}.0\n{40 << 18}.0\n"


def test_result_of_an_operator_can_run_out_too(python):
    result = python(
        """
        import torch
        from device import DEVICE
        held = torch.ones(30 << 18, device=DEVICE)
        try:
            torch.cat([held, held])
        except torch.OutOfMemoryError as error:
            print(str(error).split(" has a total")[0])
        print((held + 1).sum().item())
        """,
        **SMALL,
    )
    assert result.stdout == (
        f"{NAME} out of memory. Tried to allocate 60.00 MiB. GPU 0\n{60 << 18}.0\n"
    )


def test_cached_memory_is_released_before_running_out(python):
    result = python(
        """
        import torch
        from device import DEVICE, module
        for megabytes in (30, 50, 60, 40):
            torch.empty(megabytes << 20, dtype=torch.uint8, device=DEVICE)
        print(module.memory_stats()["num_ooms"])
        """,
        **SMALL,
    )
    assert result.stdout == "0\n"


def test_fraction_limits_this_process():
    assert module.get_per_process_memory_fraction(1) == 1.0
    total = module.get_device_properties(1).total_memory
    fraction = 8 * MIB / total
    module.set_per_process_memory_fraction(fraction, 1)
    try:
        assert module.get_per_process_memory_fraction(f"{DEVICE}:1") == fraction
        with pytest.raises(torch.OutOfMemoryError, match="8.00 MiB allowed"):
            allocate(16 * MIB, f"{DEVICE}:1")
    finally:
        module.set_per_process_memory_fraction(1.0, 1)
    assert allocate(16 * MIB, f"{DEVICE}:1").numel() == 16 * MIB


def test_fraction_is_checked():
    with pytest.raises(TypeError, match="Invalid type for fraction argument, must be `float`"):
        module.set_per_process_memory_fraction(1)
    sentence = "Invalid fraction value: .*Allowed range: 0~1|fraction nan: expected 0 to 1"
    for fraction in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=sentence):
            module.set_per_process_memory_fraction(fraction)


# ---- memory that PyTorch takes from the registered allocator -------------------------------------


def test_memory_of_a_storage_is_as_that_of_a_tensor():
    """Its DataPtr has the address as its context, which callers of raw_allocate require."""
    before = module.memory_allocated()
    storage = torch.UntypedStorage(4 * KIB, device=DEVICE)
    tensor = torch.empty(0, device=DEVICE).set_(storage)
    assert module.memory_allocated() == before + 4 * KIB
    tensor.fill_(2).mul_(3)
    tensor.record_stream(module.Stream())
    storage.resize_(8 * KIB)
    assert tensor.cpu().eq(6).all() and storage.nbytes() == 8 * KIB
    del storage, tensor
    module.synchronize()
    module.empty_cache()
    assert module.memory_allocated() == before


def test_an_empty_storage_has_no_memory_and_can_grow():
    before = module.memory_allocated()
    storage = torch.UntypedStorage(0, device=DEVICE)
    tensor = torch.empty(0, device=DEVICE).set_(storage)
    assert (storage.data_ptr(), module.memory_allocated()) == (0, before)
    assert tensor.sum().item() == 0
    tensor.resize_(128).fill_(1)
    assert tensor.sum().item() == 128 and storage.nbytes() == 512
