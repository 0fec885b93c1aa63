"""The smaller functions for device memory: raw blocks, pinned statistics, old names."""

import gc
import warnings

import pytest
import torch
from modes import openreg_only

from device import DEVICE, handle, memory, module

MIB = 1 << 20


def flat_names(nested):
    return {
        f"{figure}.{metric}" if isinstance(value, dict) else figure
        for figure, value in nested.items()
        for metric in (value if isinstance(value, dict) else [""])
    }


# ---- raw blocks ----------------------------------------------------------------------------------


def test_raw_block_counts_until_it_is_freed():
    before = module.memory_allocated(1)
    address = module.caching_allocator_alloc(1000, device=1)
    assert module.memory_allocated(1) == before + 1024
    module.caching_allocator_delete(address)
    assert module.memory_allocated(1) == before


def test_raw_block_belongs_to_the_stream_that_is_named():
    side = module.Stream()
    for stream, number in [(side, handle(side)), (side.native_handle, handle(side)), (0, 0)]:
        address = module.caching_allocator_alloc(3 * MIB, stream=stream)
        (segment,) = [
            each
            for each in module.memory_snapshot()
            if each["address"] <= address < each["address"] + each["total_size"]
        ]
        assert segment["stream"] == number
        module.caching_allocator_delete(address)


def test_raw_block_uses_the_current_stream_of_its_device():
    side = module.Stream(1)
    with module.stream(side):
        module.set_device(0)
        address = module.caching_allocator_alloc(3 * MIB, device=f"{DEVICE}:1")
    segments = module.memory_snapshot()
    (segment,) = [e for e in segments if 0 <= address - e["address"] < e["total_size"]]
    assert (segment["device"], segment["stream"]) == (1, handle(side))
    module.caching_allocator_delete(address)


def test_raw_block_of_no_bytes_is_nothing():
    assert module.caching_allocator_alloc(0) == 0
    module.caching_allocator_delete(0)


def test_mistakes_with_raw_blocks_are_refused():
    with pytest.raises(
        TypeError, match=f"Invalid type for stream argument, must be `torch.{DEVICE}"
    ):
        module.caching_allocator_alloc(1, stream="side")
    with pytest.raises((RuntimeError, ValueError), match="stream 1000|address 0x3e8"):
        module.caching_allocator_alloc(1, stream=1000)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        module.caching_allocator_alloc(1, device=7)
    with pytest.raises(torch.OutOfMemoryError):
        module.caching_allocator_alloc(1 << 60)
    address = module.caching_allocator_alloc(1)
    module.caching_allocator_delete(address)
    for wrong in (address, 12345):
        with pytest.raises(ValueError, match=f"begins at address {wrong}; pass an address that"):
            module.caching_allocator_delete(wrong)


@openreg_only("pybind11's own sentences")
def test_numbers_that_are_no_sizes_or_addresses_are_refused():
    for function in (module.caching_allocator_alloc, module.caching_allocator_delete):
        for wrong in (-1, 2**70):
            with pytest.raises(ValueError, match=f"={wrong}: expected an? .*, 0 to "):
                function(wrong)
        with pytest.raises(TypeError, match="='1': expected an? .* \\(int\\)"):
            function("1")


# ---- pinned host memory --------------------------------------------------------------------------


def test_pinned_statistics_have_the_names_of_cuda():
    documented = {
        f"{figure}.{metric}"
        for figure in ("allocations", "allocated_bytes", "active_requests", "active_bytes")
        for metric in ("current", "peak", "allocated", "freed")
    }
    documented |= {
        f"{figure}.{metric}"
        for figure in ("host_alloc_time", "host_free_time")
        for metric in ("total", "max", "min", "count", "avg")
    }
    stats = module.host_memory_stats()
    assert set(stats) == documented | {"num_host_alloc", "num_host_free"}
    assert list(stats) == sorted(stats)
    assert flat_names(module.host_memory_stats_as_nested_dict()) == set(stats)


def test_pinned_statistics_follow_a_block():
    gc.collect()
    torch.accelerator.empty_host_cache()
    before = module.host_memory_stats()
    pinned = torch.empty(5 * MIB, dtype=torch.uint8, pin_memory=True)
    held = module.host_memory_stats()
    del pinned
    cached = module.host_memory_stats()
    torch.accelerator.empty_host_cache()
    gone = module.host_memory_stats()

    def change(name):
        return [stats[name] - before[name] for stats in (held, cached, gone)]

    assert change("active_bytes.current") == [8 * MIB, 0, 0]
    assert change("active_requests.current") == [1, 0, 0]
    assert change("allocated_bytes.current") == [8 * MIB, 8 * MIB, 0]
    assert change("allocations.current") == [1, 1, 0]
    assert change("num_host_alloc") == change("host_alloc_time.count") == [1, 1, 1]
    assert change("num_host_free") == change("host_free_time.count") == [0, 0, 1]
    for name in ("host_alloc_time", "host_free_time"):
        assert 0 <= gone[f"{name}.min"] <= gone[f"{name}.avg"] <= gone[f"{name}.max"]
        assert gone[f"{name}.avg"] == gone[f"{name}.total"] / gone[f"{name}.count"]


def test_pinned_statistics_can_be_reset():
    pinned = torch.empty(100, pin_memory=True)
    module.reset_accumulated_host_memory_stats()
    module.reset_peak_host_memory_stats()
    stats = module.host_memory_stats()
    assert stats["active_bytes.allocated"] == stats["host_alloc_time.count"] == 0
    assert stats["active_bytes.peak"] == stats["active_bytes.current"] >= 512
    assert stats["host_alloc_time.max"] == 0
    assert pinned.is_pinned()


# ---- statistics ----------------------------------------------------------------------------------


def test_statistics_have_all_names_that_cuda_documents():
    documented = {
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "num_oom_rejections",
        "max_split_size",
    }
    stats = module.memory_stats()
    assert documented == {name for name in stats if "." not in name}
    for name in documented | {name.split(".")[0] for name in stats}:
        assert name in torch.cuda.memory_stats.__doc__ or name == "allocation", name


def test_emptying_the_cache_counts_the_waits_for_streams():
    module.reset_accumulated_memory_stats()
    assert module.memory_stats()["num_sync_all_streams"] == 0
    for _ in range(2):
        module.empty_cache()
    assert module.memory_stats()["num_sync_all_streams"] == 2


# CUDA's values. The bytes of a tensor are those of its elements, rounded up to 512.
PUBLISHED = [
    # https://github.com/pytorch/pytorch/issues/74443: two layers of 1024x1024 without bias, an
    # input and an output of 4x256x1024 and their sum; after backward() gradients, and no output.
    ("issue 74443, before backward", 16777728),
    ("issue 74443, after backward", 20972032),
]


def test_memory_of_a_step_is_what_was_published_for_a_gpu():
    torch.set_grad_enabled(True)
    start = module.memory_allocated()
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 1024, bias=False), torch.nn.Linear(1024, 1024, bias=False)
    ).to(DEVICE)
    x = torch.rand(4, 256, 1024, device=DEVICE)
    y = model(x).sum()
    before = module.memory_allocated() - start
    y.backward()
    after = module.memory_allocated() - start
    assert [before, after] == [figure for _, figure in PUBLISHED]


@pytest.mark.parametrize(
    ("make", "figure"),
    [
        (lambda: torch.nn.Linear(1000, 1000), 4000256 + 4096),
        (lambda: torch.nn.Linear(10, 10), 512 + 512),
        (lambda: torch.nn.Conv2d(3, 64, 7), 37888 + 512),
        (lambda: torch.nn.BatchNorm2d(64), 4 * 512 + 512),
        (lambda: torch.nn.Embedding(30522, 768), 90 << 20),  # all of its segment
    ],
)
def test_memory_of_a_module_is_that_of_its_tensors_blocks(make, figure):
    module.empty_cache()
    before = module.memory_allocated()
    layer = make().to(DEVICE)
    assert module.memory_allocated() - before == figure
    assert layer is not None


# ---- old names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "name"),
    [
        ("memory_cached", "memory_reserved"),
        ("max_memory_cached", "max_memory_reserved"),
        ("reset_max_memory_allocated", "reset_peak_memory_stats"),
        ("reset_max_memory_cached", "reset_peak_memory_stats"),
    ],
)
def test_earlier_names_work_and_warn(earlier, name):
    held = torch.empty(3 * MIB, device=DEVICE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = getattr(module, earlier)()
    assert result == getattr(module, name)()
    (warning,) = caught
    assert warning.category is FutureWarning and warning.filename == __file__
    assert f"torch.{DEVICE}.{name}" in str(warning.message)
    assert held.device.type == DEVICE


@openreg_only("torch.cuda asks NVML")
def test_memory_in_use_is_what_is_not_free():
    free, total = module.mem_get_info(1)
    assert module.device_memory_used(f"{DEVICE}:1") == total - free
    kept = torch.ones(5 << 20, device=f"{DEVICE}:1")
    assert module.device_memory_used(1) >= kept.nbytes


def test_backend_is_pytorchs_own_kind():
    assert module.get_allocator_backend() == "native"


def test_everything_of_cuda_is_here_or_said_not_to_be():
    lacking = set(torch.cuda.memory.__all__) - set(dir(module.memory))
    for name in lacking - {"caching_allocator_disabled"}:
        assert name in memory.__doc__, name
    assert set(memory.__all__) <= set(dir(module.memory))


def test_collecting_needs_no_other_process():
    module.ipc_collect()


def test_empty_cache_of_the_accelerator_releases_everything():
    gc.collect()
    torch.accelerator.empty_cache()
    before = module.memory_reserved()
    torch.empty(9 * MIB, dtype=torch.uint8, device=DEVICE)
    assert module.memory_reserved() == before + 20 * MIB
    torch.accelerator.empty_cache()
    assert module.memory_reserved() == before
