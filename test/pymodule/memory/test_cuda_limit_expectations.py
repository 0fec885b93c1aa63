"""The behaviour of CUDA's allocator when it runs out of memory, waits or reuses memory.

Like `test_cuda_expectations`, for limits, streams and host memory. `DEVICE` is the only place that
names the device.
"""

import math

import pytest
import torch

from device import DEVICE, MIB, allocate, limit_to, memory, module

# Programs that run in their own process begin with this.
PREAMBLE = f"""
import torch
DEVICE = {DEVICE!r}
module = torch.{DEVICE}
"""


pytestmark = pytest.mark.usefixtures("fresh_memory")


def stat(name):
    return module.memory_stats()[name]


# ---- out of memory -------------------------------------------------------------------------------


def test_absurd_sizes_are_refused_and_disturb_nothing():
    tensor = torch.zeros(1024, device=DEVICE)
    words = "Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of"
    with pytest.raises(RuntimeError, match=words):
        allocate(800_000_000 << 30)
    with pytest.raises(RuntimeError, match="Tried to allocate more than 1EB memory"):
        allocate(8_000_000_000 << 30)
    assert (tensor.fill_(1) == 1).all()


@pytest.mark.parametrize("settings", ["", "max_split_size_mb:1024", "expandable_segments:True"])
def test_four_tebibytes_are_refused(settings):
    memory._set_allocator_settings(settings)
    ooms, reserved = stat("num_ooms"), module.memory_reserved()
    with pytest.raises(module.OutOfMemoryError):
        torch.empty(1 << 40, device=DEVICE)
    assert stat("num_ooms") == ooms + 1
    assert module.memory_reserved() == reserved


def test_what_is_freed_makes_room_again():
    limit_to(100 * MIB)
    first = allocate(60 * MIB)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 60.00 MiB"):
        allocate(60 * MIB)
    del first
    assert allocate(60 * MIB).nbytes == 60 * MIB


def test_half_of_a_device_is_a_limit():
    tensor = torch.zeros(1024, device=DEVICE)
    total = module.get_device_properties(0).total_memory
    module.empty_cache()
    module.reset_peak_memory_stats()
    module.set_per_process_memory_fraction(0.5, 0)
    allocate(int(total * 0.499) - module.max_memory_reserved())
    module.empty_cache()
    with pytest.raises(RuntimeError, match="out of memory"):
        allocate(int(total * 0.5))
    assert (tensor.fill_(1) == 1).all()


def test_fraction_is_returned_in_whole_bytes():
    total = module.get_device_properties(0).total_memory
    for fraction in [1.0, 0.0, *torch.rand(3).tolist()]:
        module.set_per_process_memory_fraction(fraction)
        allowed = math.floor(fraction * total + 0.5)
        assert module.get_per_process_memory_fraction() == allowed / total
    module.set_per_process_memory_fraction(0.0)
    with pytest.raises(torch.OutOfMemoryError, match=r"\D0 bytes allowed; "):
        allocate(30 * MIB)


def test_large_blocks_of_both_kinds_of_segments_are_released_to_fit():
    """Three of 40 MiB, one of them expandable; a request for all memory releases all of them."""
    limit_to(120 * MIB)
    tensors = []
    for expandable in (False, True, False):
        memory._set_allocator_settings(f"expandable_segments:{expandable},max_split_size_mb:40")
        tensors.append(allocate(40 * MIB))
    with pytest.raises(torch.OutOfMemoryError):
        allocate(40 * MIB)
    tensors.clear()
    whole = allocate(120 * MIB)
    assert whole.nbytes == 120 * MIB
    assert [each["total_size"] for each in module.memory_snapshot() if is_in(whole, each)] == [
        120 * MIB
    ]


def is_in(tensor, segment):
    start = segment["address"]
    return start <= tensor.data_ptr() < start + segment["total_size"]


def test_garbage_collection_leaves_expandable_segments_alone():
    limit_to(120 * MIB)
    before = module.memory_reserved()
    tensors = []
    for expandable in (False, True):
        memory._set_allocator_settings(
            f"expandable_segments:{expandable},garbage_collection_threshold:0.5"
        )
        tensors.append(allocate(40 * MIB))
    tensors.clear()
    retries = stat("num_alloc_retries")
    tensor = allocate(80 * MIB)  # releases the 40 MiB of cudaMalloc, and extends those of the range
    assert module.memory_reserved() == before + 80 * MIB
    assert stat("num_alloc_retries") == retries
    assert tensor.nbytes == 80 * MIB


def test_observer_and_history_get_different_sizes(python):
    """The observer gets the size of the segment, the history the rounded request."""
    result = python(
        PREAMBLE
        + """
attach = getattr(module.memory, "_attach_out_of_memory_observer", None)
attach = attach or torch._C._cuda_attach_out_of_memory_observer
attach(lambda device, asked, most, free: print(device, asked >> 20, most >> 20, free >> 20))
module.memory._record_memory_history(context=None)
held = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
try:
    torch.empty(100, dtype=torch.uint8, device=DEVICE)
except module.OutOfMemoryError:
    pass
(event,) = [e for e in module.memory._snapshot()["device_traces"][0] if e["action"] == "oom"]
print(event["size"], event["device_free"], event["pool_id"])
""",
        OPENREG_DEVICE_MEMORY="64M",
    )
    assert result.stdout == "0 2 64 0\n512 0 (0, 0)\n"


@pytest.mark.parametrize("fraction", ["0.0", "0.5", "1.0"])
def test_fraction_can_be_set_by_the_environment(python, fraction):
    program = PREAMBLE + "print(module.get_per_process_memory_fraction(0), end='')"
    result = python(program, PYTORCH_CUDA_ALLOC_CONF=f"per_process_memory_fraction:{fraction}")
    assert result.stdout == fraction


@pytest.mark.parametrize("fraction", ["-0.1", "1.1"])
def test_fraction_of_the_environment_is_checked(python, fraction):
    program = PREAMBLE + "module.get_per_process_memory_fraction(0)"
    result = python(
        program, expect=1, PYTORCH_CUDA_ALLOC_CONF=f"per_process_memory_fraction:{fraction}"
    )
    assert "per_process_memory_fraction is invalid" in result.stderr


# ---- streams -------------------------------------------------------------------------------------


def test_block_goes_back_to_its_stream_when_the_other_one_is_done(close_gate):
    side = module.Stream()
    with module.stream(side):
        tensor = torch.ones(4, device=DEVICE)
    module.current_stream().wait_stream(side)
    address = tensor.data_ptr()
    result = torch.zeros(4, device=DEVICE)
    gate = close_gate()
    tensor.record_stream(module.current_stream())
    result.copy_(tensor)
    del tensor
    with module.stream(side):
        too_early = torch.zeros(4, device=DEVICE)
    assert too_early.data_ptr() != address
    gate.open()
    assert result.tolist() == [1, 1, 1, 1]
    module.current_stream().synchronize()
    with module.stream(side):
        assert torch.zeros(4, device=DEVICE).data_ptr() == address


@pytest.mark.parametrize("start", [1, 5])
def test_recording_a_stream_on_a_view_keeps_the_whole_block(close_gate, start):
    """Also on a view behind its last element, which is empty."""
    own, other = module.Stream(), module.Stream()
    with module.stream(own):
        base = torch.empty(2, device=DEVICE)
    view = base[start:]
    assert view.storage_offset() > 0
    gate = close_gate(other)
    view.record_stream(other)
    address = base.data_ptr()
    del base, view
    own.synchronize()
    with module.stream(own):
        tensor = torch.empty(2, device=DEVICE)
    assert tensor.data_ptr() != address
    gate.open()


def test_blocks_that_wait_for_a_stream_are_waited_for_before_running_out(everything_queued):
    limit_to(66 * MIB)
    ooms = stat("num_ooms")
    side = module.Stream()
    with module.stream(side):
        total = torch.zeros(3 * MIB, device=DEVICE)
    for _ in range(30):
        ones = torch.ones(3 * MIB, device=DEVICE)
        side.wait_stream(module.current_stream())
        with module.stream(side):
            total += ones
        ones.record_stream(side)
        del ones
    side.synchronize()
    assert (total == 30).all()
    assert stat("num_ooms") == ooms


# ---- host memory ---------------------------------------------------------------------------------


def test_pinned_memory_is_used_again_but_not_while_it_is_copied(close_gate):
    pinned = torch.ones(1).pin_memory()
    address = pinned.data_ptr()
    del pinned
    pinned = torch.ones(1).pin_memory()
    assert pinned.data_ptr() == address
    tensor = torch.zeros(1, device=DEVICE)
    gate = close_gate()
    tensor.copy_(pinned, non_blocking=True)
    del pinned
    assert torch.zeros(1).pin_memory().data_ptr() != address
    gate.open()
    assert tensor.tolist() == [1]


def test_pinned_memory_is_counted_in_powers_of_two(python):
    """40 KiB count as 64, 80 KiB as 128; allocated memory stays when the cache is emptied."""
    result = python(
        PREAMBLE
        + """
def shown():
    stats = {k: v for k, v in module.host_memory_stats().items() if "time" not in k}
    print(*(f"{name}={value}" for name, value in stats.items() if value))
    times = [module.host_memory_stats()[f"host_{what}_time.count"] for what in ("alloc", "free")]
    print(*times)
module.init()
shown()
first = torch.ones(10 << 10, pin_memory=True)
shown()
second = torch.ones(20 << 10, pin_memory=True)
torch.accelerator.empty_host_cache()
shown()
"""
    )

    def line(count, nbytes):
        figures = [("active_bytes", nbytes), ("active_requests", count)]
        figures += [("allocated_bytes", nbytes), ("allocations", count)]
        names = [
            f"{figure}.{metric}={value}"
            for figure, value in figures
            for metric in ("allocated", "current", "peak")
        ]
        return " ".join([*names, f"num_host_alloc={count}"])

    assert result.stdout.splitlines() == [
        *("", "0 0"),
        *(line(1, 64 << 10), "1 0"),
        *(line(2, 192 << 10), "2 0"),
    ]


@pytest.mark.parametrize(
    "settings",
    [
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
        "pinned_use_cuda_host_register:False",
        "pinned_use_background_threads:True",
    ],
)
def test_pinned_memory_is_there_with_every_way_to_make_it(python, settings):
    result = python(
        PREAMBLE
        + f"""
module.memory._set_allocator_settings({settings!r})
for elements in (20, 1 << 20):
    tensor = torch.ones(elements, pin_memory=True)
    print(tensor.is_pinned(), tensor.sum().item() == elements, torch.ones(elements).is_pinned())
    del tensor
    torch.accelerator.empty_host_cache()
"""
    )
    assert result.stdout == "True True False\n" * 2
