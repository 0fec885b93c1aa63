"""PyTorch's own tools read the memory history: its visualizer, profiler and accelerator."""

import pickle

import pytest
import torch
from histories import MIB, allocate, block_of, recording_ends  # noqa: F401 - for each test
from torch.cuda import _memory_viz

from device import DEVICE, memory, module


def as_they_are(lines):
    return lines


@pytest.fixture
def snapshot():
    """Return a snapshot of a program that trained a little."""
    memory._record_memory_history()
    pool = module.MemPool()  # has nothing cached, whatever ran before
    with module.use_mem_pool(pool):
        model = torch.nn.Linear(64, 64).to(DEVICE)
        model(torch.ones(8, 64, device=DEVICE)).square().mean().backward()
    taken = memory._snapshot()
    assert model.weight.grad is not None
    return taken


def test_plots_of_the_visualizer_hold_the_snapshot(snapshot):
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        page = plot(snapshot)
        assert "</html>" in page or "<script" in page
    assert _memory_viz.trace_plot(snapshot, filter_freed=True)


def test_summary_of_segments_adds_up(snapshot):
    # `segsum` checks that the blocks of each segment add up to its size.
    text = _memory_viz.segsum(snapshot)
    assert f"segments: {len(snapshot['segments'])}\n" in text


def test_trace_lists_the_allocations(snapshot):
    text = _memory_viz.trace(snapshot)
    assert "cudaMalloc(" in text and "[0:" in text and "del " in text


def test_flame_graphs_name_functions(snapshot):
    assert "test_memory_viz.py" in _memory_viz.memory(snapshot, as_they_are)
    assert "active_allocated" in _memory_viz.segments(snapshot, as_they_are)


def test_snapshots_can_be_compared():
    before = module.memory_snapshot()
    tensor = allocate(30 * MIB)
    after = module.memory_snapshot()

    assert tensor.device.type == DEVICE
    assert "only_after;stream_0;seg_" in _memory_viz.compare(before, after, as_they_are)


def test_snapshot_can_be_written_to_a_file(tmp_path):
    memory._record_memory_history(stacks="python")
    tensor = allocate(1000)
    memory._dump_snapshot(tmp_path / "snapshot.pickle")
    loaded = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert block_of(tensor, loaded)["frames"] == block_of(tensor, memory._snapshot())["frames"]


@pytest.mark.skipif(
    not hasattr(torch.accelerator.memory, "_snapshot"),
    reason="this release of PyTorch has snapshots only in the modules of the devices",
)
def test_accelerator_has_the_same_snapshot():
    tensor = allocate(1000)
    assert torch.accelerator.memory._snapshot()["segments"] == memory._snapshot()["segments"]
    assert tensor.device.type == DEVICE


def test_profile_shows_memory_of_devices():
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        record_shapes=True,
        with_stack=True,
    ) as profile:
        tensor = allocate(5 * MIB)
        address = tensor.data_ptr()
        del tensor
    allocations = [
        (event.extra_fields.ptr, event.extra_fields.alloc_size, event.extra_fields.device)
        for event in profile.profiler.kineto_results.experimental_event_tree()
        for event in _and_below(event)
        if event.tag == torch._C._profiler._EventType.Allocation
    ]
    device = torch.device(f"{DEVICE}:0")
    assert (address, 5 * MIB, device) in allocations
    assert (address, -5 * MIB, device) in allocations
    assert _memory_viz.profile_plot(profile)


def _and_below(event):
    yield event
    for child in event.children:
        yield from _and_below(child)
