"""`PYTORCH_ALLOC_CONF` and its effects: the keys, values and messages are CUDA's."""

import gc

import pytest
import torch
from modes import fails_in_cuda_mode
from offered import needs_pinned_thresholds

from device import DEVICE, memory, module

MIB = 1 << 20


@pytest.fixture
def settings():
    """Set what a test needs, starting with an empty cache; restore everything afterwards."""
    gc.collect()
    module.empty_cache()
    yield memory._set_allocator_settings
    gc.collect()
    memory._set_allocator_settings(
        "expandable_segments:False,large_segment_size_mb:20,throw_on_cudamalloc_oom:False,"
        "per_process_memory_fraction:1.0"
    )
    module.empty_cache()


def allocate(nbytes, device=DEVICE):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def allocated_by(nbytes):
    """Return the allocated bytes of a tensor with so many bytes."""
    before = module.memory_allocated()
    tensor = allocate(nbytes)
    held = module.memory_allocated() - before
    del tensor
    return held


# ---- what settings do ----------------------------------------------------------------------------


def test_sizes_are_rounded_up_to_steps_between_powers_of_two(settings):
    settings("roundup_power2_divisions:4")
    assert allocated_by(84 * MIB) == 96 * MIB
    assert allocated_by(1200) == 1536  # steps of 256 bytes would be too small
    settings("roundup_power2_divisions:[64:8,128:2,>:1]")
    assert allocated_by(84 * MIB) == 88 * MIB
    assert allocated_by(130 * MIB) == 192 * MIB
    assert allocated_by(300 * MIB) == 300 * MIB
    settings("")
    assert allocated_by(84 * MIB) == 84 * MIB


def test_large_blocks_are_not_split(settings):
    settings("max_split_size_mb:40")
    oversize = "oversize_allocations.current"
    before = module.memory_stats()[oversize]
    tensor = allocate(60 * MIB)
    assert module.memory_stats()[oversize] == before + 1
    del tensor
    reserved = module.memory_reserved()
    small = allocate(12 * MIB)  # not from the 60 MiB
    assert module.memory_reserved() == reserved + 12 * MIB
    assert allocated_by(50 * MIB) == 60 * MIB  # reused as it is
    del small


def test_expandable_segments_grow(settings):
    settings("expandable_segments:True")
    reserved = module.memory_reserved()
    tensors = [allocate(30 * MIB) for _ in range(3)]
    assert module.memory_reserved() - reserved == 100 * MIB  # five pages of 20 MiB
    (segment,) = [s for s in module.memory_snapshot() if s["is_expandable"]]
    assert (segment["total_size"], len(segment["blocks"])) == (100 * MIB, 4)
    del tensors[1]
    module.empty_cache()
    assert module.memory_reserved() - reserved == 80 * MIB
    parts = [s for s in module.memory_snapshot() if s["is_expandable"]]
    assert [s["total_size"] for s in parts] == [40 * MIB, 40 * MIB]
    assert module.memory_stats()["inactive_split.all.current"] == 0
    assert all((tensor == 0).all() for tensor in [torch.zeros_like(each) for each in tensors])


def test_history_contains_mapping_and_unmapping(settings):
    settings("expandable_segments:True")
    memory = module.memory
    memory._record_memory_history(context=None, max_entries=1000)
    allocate(21 * MIB)
    module.empty_cache()
    events = memory._snapshot()["device_traces"][0]
    memory._record_memory_history(enabled=None)
    actions = [(event["action"], event["size"]) for event in events]
    assert actions == [
        ("segment_map", 40 * MIB),
        ("alloc", 21 * MIB),
        ("free_requested", 21 * MIB),
        ("free_completed", 21 * MIB),
        ("segment_unmap", 40 * MIB),
    ]


def test_requests_may_be_refused_before_the_device_is_asked(settings):
    _, total = module.mem_get_info()
    settings(f"throw_on_cudamalloc_oom:True,per_process_memory_fraction:{100 * MIB / total}")
    stats = module.memory_stats()
    with pytest.raises(torch.OutOfMemoryError) as error:
        allocate(130 * MIB + 1)
    assert str(error.value).endswith(
        "Allocation was preemptively rejected because it would exceed per_process_memory_fraction "
        "limit. Requested size: 130.00 MiB"
    )
    after = module.memory_stats()
    assert after["num_oom_rejections"] == stats["num_oom_rejections"] + 1
    assert after["num_ooms"] == stats["num_ooms"]


def test_snapshots_show_the_settings(settings):
    settings("max_split_size_mb:64,garbage_collection_threshold:0.5,expandable_segments:True")
    shown = memory._snapshot()["allocator_settings"]
    assert shown["max_split_size"] == 64 * MIB
    assert shown["garbage_collection_threshold"] == 0.5
    assert shown["expandable_segments"] is True
    assert shown["PYTORCH_CUDA_ALLOC_CONF"].startswith("max_split_size_mb:64,")
    settings("")
    shown = memory._snapshot()["allocator_settings"]
    assert (shown["max_split_size"], shown["expandable_segments"]) == (-1, True)


def test_the_accelerators_function_sets_the_same(settings):
    torch._C._accelerator_setAllocatorSettings("roundup_power2_divisions:4")
    assert allocated_by(84 * MIB) == 96 * MIB


def test_memory_is_released_at_once_while_the_cache_is_off(settings):
    free = module.mem_get_info()[0]
    allocated = module.memory_allocated()
    with memory.caching_allocator_disabled():
        tensor = torch.ones(3 << 20, device=DEVICE)
        assert module.mem_get_info()[0] == free - 12 * MIB
        assert module.memory_allocated() == allocated
        assert (tensor + tensor).sum().item() == 2 * len(tensor)
        del tensor
        assert module.mem_get_info()[0] == free
    tensor = torch.ones(3, device=DEVICE)
    assert module.memory_allocated() == allocated + 512
    assert tensor.sum().item() == 3


# ---- the environment -----------------------------------------------------------------------------

SHOW = """
    import torch
    from device import DEVICE, module
    tensor = torch.empty(84 << 20, dtype=torch.uint8, device=DEVICE)
    print(module.memory_allocated() >> 20, module.memory_stats()["max_split_size"])
    """


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, "84 -1"),
        ({"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:4"}, "96 -1"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, f"84 {64 * MIB}"),
        (
            {
                "PYTORCH_ALLOC_CONF": "roundup_power2_divisions:4",
                "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64",
            },
            f"84 {64 * MIB}",  # CUDA's own variable wins, and the other is ignored
        ),
    ],
)
def test_settings_are_taken_from_the_environment(python, variables, shown):
    assert python(SHOW, **variables).stdout.strip() == shown


def test_cache_is_off_from_the_start(python):
    result = python(SHOW, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert result.stdout == "0 -1\n"


def test_fraction_of_the_environment_is_the_limit_at_the_start(python):
    program = "from device import module; print(module.get_per_process_memory_fraction())"
    result = python(program, PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.25")
    assert result.stdout == "0.25\n"


def test_a_mistake_in_the_environment_is_raised_when_memory_is_used(python):
    program = """
        import torch
        from device import DEVICE
        print(torch.ones(2).sum().item())
        for _ in range(2):
            try:
                torch.ones(2, device=DEVICE)
            except ValueError as error:
                print(error)
        """
    result = python(program, PYTORCH_ALLOC_CONF="max_split_size_mb:3")
    sentence = "CachingAllocator option max_split_size_mb too small, must be >= 20\n"
    assert result.stdout == "2.0\n" + 2 * sentence


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nonsense:1", "Unrecognized key 'nonsense' in Accelerator allocator config."),
        ("max_split_size_mb:19", "max_split_size_mb too small, must be >= 20"),
        ("max_non_split_rounding_mb:19", "max_non_split_rounding_mb too small, must be >= 20"),
        ("large_segment_size_mb:10", "large_segment_size_mb must be > 10 MB"),
        ("garbage_collection_threshold:1.0", "set it in \\(0.0, 1.0\\)"),
        ("per_process_memory_fraction:1.1", "set it in \\[0.0, 1.0\\]"),
        ("expandable_segments:true", "Expected 'True' or 'False' at index 2 in ConfigTokenizer"),
        ("throw_on_cudamalloc_oom:1", "Expected 'True' or 'False' at index 2 in ConfigTokenizer"),
        ("roundup_power2_divisions:3", "the divisions has to be power of 2"),
        ("roundup_power2_divisions:[3:4]", "the intervals have to be power of 2"),
        ("pinned_num_register_threads:3", "has to be power of 2, got 3"),
        ("pinned_num_register_threads:256", "less than or equal to 128, got 256"),
        ("pinned_num_register_threads:0", "has to be power of 2, got 0"),
        ("pinned_reserve_segment_size_mb:0", "segment size has to be greater than 0"),
        ("pinned_reserve_segment_size_mb:abc", "stoull"),
        pytest.param("pinned_max_round_threshold_mb:abc", "stoull", marks=needs_pinned_thresholds),
        pytest.param("pinned_max_cached_size_mb:abc", "stoull", marks=needs_pinned_thresholds),
        ("pinned_use_background_threads:1", "Expected 'True' or 'False' at index 2"),
        ("pinned_use_cuda_host_register:1", "Expected 'True' or 'False' at index 2"),
        ("pinned_free_catch_all:1", "Expected 'True' or 'False' at index 2"),
        ("backend:foo", "Unknown allocator backend, options are native and cudaMallocAsync"),
        (
            "backend:cudaMallocAsync",
            "openreg does not implement the allocator backend cudaMallocAsync",
        ),
        ("max_split_size_mb:abc", "stoull"),
    ],
)
def test_mistakes_are_refused_in_cudas_words(settings, text, sentence):
    with pytest.raises(ValueError, match=sentence):
        settings(text)


@fails_in_cuda_mode("what comes before a mistake is not set")
def test_settings_before_a_mistake_take_effect(settings):
    with pytest.raises(ValueError, match="Unrecognized key"):
        settings("roundup_power2_divisions:4,nonsense:1")
    assert allocated_by(84 * MIB) == 96 * MIB


# ---- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + 1,
        lambda x: x * 2.5,
        lambda x: 1 - x,
        lambda x: x > 0,
        lambda x: x.clamp(0, 1),
        lambda x: x**2,
        lambda x: torch.add(x, torch.tensor(2)),
    ],
)
def test_a_number_takes_no_memory(operation):
    x = torch.randn(100, device=DEVICE)
    before = module.memory_stats()["allocation.all.allocated"]
    result = operation(x)
    after = module.memory_stats()["allocation.all.allocated"]
    assert after - before == 1
    assert torch.equal(result.cpu(), operation(x.cpu()))


def test_writing_in_place_takes_no_memory_for_a_number():
    x = torch.randn(30, device=DEVICE)
    before = module.memory_stats()["allocation.all.allocated"]
    x.add_(1).mul_(2)
    torch._foreach_add_([x, x], 1)
    assert module.memory_stats()["allocation.all.allocated"] == before
