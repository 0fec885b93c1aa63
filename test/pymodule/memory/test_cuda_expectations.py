"""The behaviour of CUDA's allocator: its statistics, and how settings change them.

PyTorch has tests for that allocator. Each behaviour that they rely on is tested here once, with the
values that follow from its rules. Limits and streams, pools, and the history have files of their
own. `DEVICE` is the only place that names the device.
"""

import collections
import random

import pytest
import torch

from device import DEVICE, MIB, allocate, memory, module

FIGURES = [
    *("allocation", "segment", "active", "inactive_split"),
    *("allocated_bytes", "reserved_bytes", "active_bytes"),
    *("inactive_split_bytes", "requested_bytes"),
]
POOLS = ("all", "small_pool", "large_pool")


@pytest.fixture(autouse=True)
def fresh_statistics(fresh_memory):
    for index in (0, 1):
        module.reset_accumulated_memory_stats(index)
        module.reset_peak_memory_stats(index)


def stat(name, index=0):
    return module.memory_stats(index)[name]


# ---- statistics ----------------------------------------------------------------------------------


def figures_of(segments):
    """Return the current statistics that a snapshot's segments and blocks add up to."""
    sums = collections.Counter({f"{figure}.{pool}": 0 for figure in FIGURES for pool in POOLS})
    for segment in segments:
        blocks = segment["blocks"]
        active = [block for block in blocks if block["state"].startswith("active")]
        held = [block for block in blocks if block["state"] == "active_allocated"]
        split_off = [block for block in blocks if block["state"] == "inactive" and len(blocks) > 1]
        if segment["is_expandable"]:
            split_off = []
        assert sum(block["requested_size"] for block in active) == segment["requested_size"]
        for pool in ("all", f"{segment['segment_type']}_pool"):
            sums[f"segment.{pool}"] += not segment["is_expandable"]
            sums[f"allocation.{pool}"] += len(held)
            sums[f"active.{pool}"] += len(active)
            sums[f"inactive_split.{pool}"] += len(split_off)
            sums[f"inactive_split_bytes.{pool}"] += sum(block["size"] for block in split_off)
            sums[f"reserved_bytes.{pool}"] += segment["total_size"]
            for name in ("allocated", "active", "requested"):
                sums[f"{name}_bytes.{pool}"] += segment[f"{name}_size"]
    return dict(sums)


def check_statistics_against_snapshot():
    segments = module.memory_snapshot()
    places = [(segment["device"], segment["address"]) for segment in segments]
    assert places == sorted(places)
    for index in (0, 1):
        stats = module.memory_stats(index)
        sums = figures_of([each for each in segments if each["device"] == index])
        assert sums == {name: stats[f"{name}.current"] for name in sums}
        for name in sums:
            assert stats[f"{name}.peak"] >= stats[f"{name}.current"], name


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "roundup_power2_divisions:4,garbage_collection_threshold:0.5",
    ],
)
def test_statistics_of_two_devices_are_sums_of_the_snapshot(settings):
    memory._set_allocator_settings(settings)
    chance = random.Random(7)
    streams = [[module.default_stream(index), module.Stream(index)] for index in (0, 1)]
    held = []
    for step in range(400):
        index = chance.randrange(2)
        action = chance.random()
        if action < 0.55:
            with module.stream(chance.choice(streams[index])):
                held.append(allocate(int(2 ** chance.uniform(0, 25)), index))
        elif action < 0.97 and held:
            gone = held.pop(chance.randrange(len(held)))
            if chance.random() < 0.2:
                gone.record_stream(chance.choice(streams[gone.get_device()]))
            del gone
        elif action >= 0.97:
            module.empty_cache()
        if step % 4 == 0:
            check_statistics_against_snapshot()
    held.clear()
    module.synchronize(0)
    module.synchronize(1)
    module.empty_cache()
    check_statistics_against_snapshot()


def test_small_tensor_is_active_with_a_kilobyte():
    generic = torch.accelerator
    before = generic.memory_stats()["active_bytes.all.current"]
    tensor = torch.randn(256, device=DEVICE)
    assert generic.memory_stats()["active_bytes.all.current"] == before + 1024
    assert generic.memory_stats()["active_bytes.all.freed"] == 0
    del tensor
    assert generic.memory_stats()["active_bytes.all.current"] == before
    assert generic.memory_stats()["active_bytes.all.freed"] == 1024


def test_every_peak_is_reset_to_what_there_is():
    kept = [allocate(3 * MIB), allocate(100)]
    allocate(30 * MIB)
    module.empty_cache()
    assert stat("reserved_bytes.all.peak") > stat("reserved_bytes.all.current")
    module.reset_peak_memory_stats()
    stats = module.memory_stats()
    peaks = {name: stats[name] for name in stats if name.endswith(".peak")}
    assert peaks == {name: stats[name.replace(".peak", ".current")] for name in peaks}
    assert len(kept) == 2


def test_emptying_the_cache_counts_segments_and_keeps_the_peak():
    tensors = [allocate(30 * MIB), allocate(34 * MIB)]
    assert stat("num_device_alloc") == 2
    del tensors
    peak, reserved = module.max_memory_reserved(), module.memory_reserved()
    freed, waits = stat("num_device_free"), stat("num_sync_all_streams")
    module.empty_cache()
    assert stat("num_device_free") == freed + 2
    assert stat("num_sync_all_streams") == waits + 1
    assert module.memory_reserved() == reserved - 64 * MIB
    assert module.max_memory_reserved() == peak


def test_matrix_product_needs_no_more_when_it_broadcasts():
    a = torch.rand(1, 32, 32, device=DEVICE)
    b = torch.rand(24, 32, 1, device=DEVICE)
    module.reset_peak_memory_stats()

    def most_used_by(operator, *arguments):
        before = module.memory_allocated()
        operator(*arguments)
        peak = module.max_memory_allocated()
        module.reset_peak_memory_stats()
        return peak - before

    expanded = a.expand(24, 32, 32)
    of_matmul = most_used_by(torch.matmul, a, b)
    assert most_used_by(torch.matmul, expanded, b) == of_matmul
    assert most_used_by(torch.bmm, expanded, b) == of_matmul


@pytest.mark.parametrize("elements", [1000, 16])
@pytest.mark.parametrize("operator", [lambda x: x + 1, lambda x: 1 - x, lambda x: x > 0])
def test_number_beside_a_tensor_takes_no_memory(operator, elements):
    assert count_allocations(operator, torch.ones(elements, device=DEVICE)) == 1


@pytest.mark.parametrize(
    "operator",
    [
        torch.sum,
        torch.norm,
        torch.cumsum,
        torch.nn.functional.softplus,
        torch.mean,
        torch.std,
        lambda x: x // 2,
    ],
)
def test_operator_takes_the_memory_of_its_result_alone(operator):
    arguments = (0,) if operator is torch.cumsum else ()
    assert count_allocations(operator, torch.rand(1000, device=DEVICE), *arguments) == 1


@pytest.mark.parametrize("elements", [10, 10_000])
@pytest.mark.parametrize(
    "dtypes", [("float32", "bfloat16"), ("int32", "float64"), ("int64", "int32")]
)
def test_arguments_of_two_dtypes_take_no_memory(dtypes, elements):
    a, b = (torch.ones(elements, dtype=getattr(torch, each), device=DEVICE) for each in dtypes)
    for _ in range(2):  # the second launch knows what the first one returned
        assert count_allocations(torch.add, a, b) == 1
        assert count_allocations(torch.div, a, b) == 1


def count_allocations(operator, *arguments):
    before = stat("allocation.all.allocated")
    operator(*arguments)
    return stat("allocation.all.allocated") - before


def test_freed_memory_is_not_reused_while_it_is_in_use():
    """Each tensor keeps its values while others are created, freed and released around it."""
    for settings in ("", "expandable_segments:True"):
        memory._set_allocator_settings(settings)
        chance = random.Random(123)
        held = {}
        for number in range(150):
            while sum(each.nbytes for each in held.values()) > 100 * MIB:
                key = chance.choice(list(held))
                assert (held.pop(key) == key).all()
            elements = chance.randrange(2 * MIB // 4, 20 * MIB // 4)
            held[number] = torch.full((elements,), number, dtype=torch.int32, device=DEVICE)
            if chance.random() < 0.1:
                module.empty_cache()
        assert all((tensor == number).all() for number, tensor in held.items())
        held.clear()
        module.empty_cache()


# ---- settings ------------------------------------------------------------------------------------


def held_by(nbytes):
    """Return what a tensor of so many bytes adds to active_bytes, and to requested_bytes."""
    names = ("active_bytes.all.allocated", "requested_bytes.all.allocated")
    before = [stat(name) for name in names]
    tensor = allocate(nbytes)
    after = [stat(name) for name in names]
    assert tensor.nbytes == nbytes
    return tuple(late - early for late, early in zip(after, before, strict=True))


def test_rounding_changes_what_is_held_and_not_what_was_requested():
    asked, big = 84 * MIB, 400 * MIB
    by_intervals = "roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]"
    for settings, held in [
        ("", (asked, big)),
        ("roundup_power2_divisions:4", (96 * MIB, 448 * MIB)),
        ("garbage_collection_threshold:0.5,max_split_size_mb:40", (asked, big)),
        (f"garbage_collection_threshold:0.5,{by_intervals}", (88 * MIB, 512 * MIB)),
        ("release_lock_on_cudamalloc:True", (asked, big)),
    ]:
        memory._set_allocator_settings(settings)
        assert held_by(asked) == (held[0], asked), settings
        module.empty_cache()
        assert held_by(big) == (held[1], big), settings
        module.empty_cache()


@pytest.mark.parametrize(
    "settings",
    [
        "foo:1,bar:2",
        "garbage_collection_threshold:1.2",
        "max_split_size_mb:2",
        "release_lock_on_cudamalloc:none",
        "pinned_use_cuda_host_register:none",
        "pinned_num_register_threads:none",
        "pinned_num_register_threads:1024",
    ],
)
def test_accelerator_refuses_what_no_setting_can_be(settings):
    with pytest.raises(ValueError):
        torch._C._accelerator_setAllocatorSettings(settings)


def test_raw_memory_counts_only_while_the_cache_is_on():
    def requested_by(nbytes):
        before = stat("requested_bytes.all.allocated")
        address = module.caching_allocator_alloc(nbytes)
        after = stat("requested_bytes.all.allocated")
        module.caching_allocator_delete(address)
        return after - before

    try:
        memory.caching_allocator_enable(False)
        assert requested_by(MIB) == 0
    finally:
        memory.caching_allocator_enable(True)
    assert requested_by(MIB) == MIB


def test_functions_of_memory_are_functions_of_the_device_module():
    offered = [name for name in torch.cuda.memory.__all__ if hasattr(torch.cuda, name)]
    here = [name for name in offered if hasattr(memory, name)]
    assert [name for name in here if not hasattr(module, name)] == []
