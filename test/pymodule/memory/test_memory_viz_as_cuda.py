"""PyTorch's visualizer on snapshots of every kind: expandable segments, pools, out of memory.

The tests also replay the history: starting from the first segments and blocks, it must lead to
those of the snapshot, because the visualizer's page shows that.
"""

import base64
import contextlib
import copy
import json
import pickle
import re
import subprocess
import sys

import pytest
import torch
from torch.cuda import _memory_viz

from device import MIB, allocate, memory, module

pytestmark = pytest.mark.usefixtures("fresh_memory")


def as_they_are(lines):
    return lines


# ---- programs ------------------------------------------------------------------------------------


def ordinary_segments():
    held = [allocate(nbytes) for nbytes in (1000, 3 * MIB, 5 * MIB, 30 * MIB, 512)]
    del held[2:4]
    module.empty_cache()
    held.append(allocate(7 * MIB))
    return held


def expandable_segments_with_a_hole():
    memory._set_allocator_settings("expandable_segments:True")
    held = [allocate(nbytes) for nbytes in (30 * MIB, 100, 45 * MIB, 12 * MIB, 2 * MIB)]
    del held[2]
    module.empty_cache()
    held.append(allocate(21 * MIB))
    held.append(allocate(33 * MIB))
    return held


def private_pools():
    split, whole, gone = module.MemPool(), module.MemPool(no_split=True), module.MemPool()
    held = [split, whole]
    for pool in (split, whole, gone):
        with module.use_mem_pool(pool):
            held += [allocate(1000), allocate(3 * MIB)]
            allocate(4 * MIB)
    return held


def expandable_private_pool():
    memory._set_allocator_settings("expandable_segments:True")
    return private_pools()


def out_of_memory():
    total = module.mem_get_info(0)[1]
    allowed = module.memory_reserved(0) + 100 * MIB
    module.set_per_process_memory_fraction(allowed / total, 0)
    allocate(60 * MIB)
    held = [allocate(70 * MIB)]
    with contextlib.suppress(torch.OutOfMemoryError):
        allocate(90 * MIB)
    held.append(allocate(1000))
    return held


def streams():
    side = module.Stream()
    with module.stream(side):
        held = [allocate(1000), allocate(5 * MIB)]
    other = [allocate(1000), allocate(5 * MIB)]
    for tensor in other:
        tensor.record_stream(side)
    del tensor, other
    held.append(allocate(2000))
    return held


PROGRAMS = [
    ordinary_segments,
    expandable_segments_with_a_hole,
    private_pools,
    expandable_private_pool,
    out_of_memory,
    streams,
]


@pytest.fixture(params=PROGRAMS)
def recorded(request):
    """Return the state before a program, and a snapshot with its history."""
    before = module.memory_snapshot()
    memory._record_memory_history(stacks="python")
    held = request.param()
    taken = memory._snapshot()
    yield before, taken
    held.clear()


# ---- the history ---------------------------------------------------------------------------------


PAGE = 2 * MIB  # everything is reserved in multiples of this


def pages(address, nbytes):
    return set(range(address, address + nbytes, PAGE))


def reserved_pages(segments):
    """Return the starts of the pages that the first device's segments consist of."""
    of_segments = [
        pages(segment["address"], segment["total_size"])
        for segment in segments
        if segment["device"] == 0
    ]
    return set().union(*of_segments)


def held_blocks(segments):
    return {
        block["address"]: block["requested_size"]
        for segment in segments
        if segment["device"] == 0
        for block in segment["blocks"]
        if block["state"].startswith("active")
    }


def test_history_leads_from_the_segments_before_to_those_of_the_snapshot(recorded):
    before, snapshot = recorded
    reserved, blocks = reserved_pages(before), held_blocks(before)
    awaited = {}
    for event in snapshot["device_traces"][0]:
        action, size = event["action"], event["size"]
        address = event.get("addr")
        if action in ("segment_alloc", "segment_map"):
            assert not pages(address, size) & reserved
            reserved |= pages(address, size)
        elif action in ("segment_free", "segment_unmap"):
            assert pages(address, size) <= reserved
            assert not any(address <= held < address + size for held in blocks)
            reserved -= pages(address, size)
        elif action == "alloc":
            assert address not in blocks
            blocks[address] = size
        elif action == "free_requested":
            awaited[address] = size
        elif action == "free_completed":
            assert awaited.pop(address) == blocks.pop(address) == size
    assert reserved == reserved_pages(snapshot["segments"])
    assert blocks == held_blocks(snapshot["segments"])


# ---- the visualizer's output ---------------------------------------------------------------------


def shown_by(page):
    """Return the snapshot that a page of the visualizer contains, and the view that it opens."""
    (files, kind) = re.search(
        r"local_files = (.*)\nadd_local_files\(local_files, (.*)\)", page
    ).groups()
    (file,) = json.loads(files)
    return pickle.loads(base64.b64decode(file["base64"])), kind.strip("'")


def test_pages_hold_the_snapshot(recorded):
    _, snapshot = recorded
    for page, kind in [
        (_memory_viz.trace_plot(snapshot), "Active Memory Timeline"),
        (_memory_viz.trace_plot(snapshot, plot_segments=True), "Active Cached Memory Timeline"),
        (_memory_viz.segment_plot(snapshot), "Allocator State History"),
    ]:
        assert shown_by(page) == (snapshot, kind)


def test_filter_leaves_what_is_still_held(recorded, capsys):
    before, snapshot = recorded
    filtered = _memory_viz.filter_alloc_free_pairs(copy.deepcopy(snapshot))["device_traces"][0]
    left = {event["addr"]: event["size"] for event in filtered if event["action"] == "alloc"}
    waiting = {event["addr"] for event in filtered if event["action"] == "free_requested"}
    expected = held_blocks(snapshot["segments"])
    new = {
        address: size
        for address, size in expected.items()
        if held_blocks(before).get(address) != size
    }
    assert left == new
    assert not waiting
    assert capsys.readouterr().out == ""  # no free was completed that was not requested


def test_flame_graphs_add_up_to_reserved_memory(recorded):
    _, snapshot = recorded
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    for graph in (_memory_viz.segments, _memory_viz.memory):
        lines = graph(snapshot, as_they_are).splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == reserved
        held = [line for line in lines if "active_allocated" in line and "<gaps>" not in line]
        assert any(":allocate " in line for line in held)


def test_summary_has_the_values_of_the_statistics(recorded):
    _, snapshot = recorded
    text = _memory_viz.segsum(snapshot)
    stats = [module.memory_stats(index) for index in range(module.device_count())]
    requested = sum(
        block["requested_size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )
    reserved = sum(each["reserved_bytes.all.current"] for each in stats)
    assert f"segments: {len(snapshot['segments'])}\n" in text
    assert f"total_reserved: {_memory_viz.Bytes(reserved)}\n" in text
    assert f"total_allocated: {_memory_viz.Bytes(requested)}\n" in text


def test_trace_names_every_event(recorded):
    _, snapshot = recorded
    text = _memory_viz.trace(snapshot)
    events = snapshot["device_traces"][0]
    assert f"{len(events)} entries\n" in text
    for action, words in [
        ("segment_alloc", " = cudaMalloc("),
        ("segment_free", "cudaFree("),
        ("free_requested", "del "),
        ("free_completed", "# free completed for "),
        ("oom", "raise OutOfMemoryError # "),
    ]:
        expected = sum(event["action"] == action for event in events)
        assert (
            sum(line.startswith(words) or words in line for line in text.splitlines()) == expected
        )


def test_running_out_is_shown_with_the_values_of_the_error():
    memory._record_memory_history(context=None)
    held = out_of_memory()
    text = _memory_viz.trace(memory._snapshot())
    free = module.mem_get_info(0)[0] + (2 * MIB)  # at that time; 2 MiB were reserved since
    assert (
        f"raise OutOfMemoryError # 90.0MiB requested, {_memory_viz.Bytes(free)} free in CUDA"
        in text
    )
    assert len(held) == 2


def test_comparison_names_the_segments_that_came_and_went(capsys):
    memory._set_allocator_settings("expandable_segments:True")
    first = allocate(30 * MIB)
    before = module.memory_snapshot()
    second = allocate(30 * MIB)
    after = module.memory_snapshot()
    lines = _memory_viz.compare(before, after, as_they_are).splitlines()
    out = capsys.readouterr().out
    assert str(first.data_ptr()) in out  # the same start, but longer: removed and added
    assert {line.split(";")[0] for line in lines} == {"only_before", "only_after"}
    sizes = {
        side: sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(side))
        for side in ("only_before", "only_after")
    }
    assert sizes == {"only_before": 40 * MIB, "only_after": 60 * MIB}
    assert second.nbytes == 30 * MIB


# ---- files ---------------------------------------------------------------------------------------


def test_script_of_the_visualizer_reads_the_file(tmp_path):
    memory._record_memory_history(stacks="python")
    held = expandable_segments_with_a_hole()
    dump, page = tmp_path / "snapshot.pickle", tmp_path / "page.html"
    memory._dump_snapshot(str(dump))

    def script(*arguments):
        command = [sys.executable, _memory_viz.__file__, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "total_reserved: " in script("stats", dump)
    assert "entries\n" in script("trace", dump)
    script("trace_plot", dump, "-o", page)
    assert shown_by(page.read_text())[1] == "Active Memory Timeline"
    script("segment_plot", dump, "-o", page)
    assert shown_by(page.read_text())[0] == pickle.loads(dump.read_bytes())
    assert len(held) == 6


def test_drawings_are_what_the_flame_graph_script_makes_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # where PyTorch caches the script
    (tmp_path / ".cache").mkdir()
    stand_in = tmp_path / ".cache" / "flamegraph.pl"
    stand_in.write_text("#!/bin/sh\nexec cat\n")
    stand_in.chmod(0o755)
    memory._record_memory_history("state", stacks="python")
    tensor = allocate(1000)
    for save in (memory._save_segment_usage, memory._save_memory_usage):
        save(tmp_path / "drawing.svg")
        assert "test_memory_viz_as_cuda.py" in (tmp_path / "drawing.svg").read_text()
    assert tensor.nbytes == 1000
