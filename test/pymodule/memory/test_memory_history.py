"""The history of memory and its snapshots, in the format of torch.cuda."""

import threading

import pytest
import torch
from histories import (
    MIB,
    actions,
    allocate,
    allocate_in_a_function_with_this_name,
    block_of,
    events,
    names,
    recording_ends,  # noqa: F401 - for each test
)

from device import DEVICE, handle, memory, module


def test_snapshot_has_the_keys_of_cuda():
    memory._record_memory_history()
    tensor = allocate(1000)
    snapshot = memory._snapshot()
    assert set(snapshot) == {
        "segments",
        "device_traces",
        "allocator_settings",
        "external_annotations",
    }
    (segment,) = [each for each in snapshot["segments"] if each["device"] == 0]
    assert set(segment) == {
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
        "frames",
        "blocks",
    }
    assert set(block_of(tensor, snapshot)) == {
        "address",
        "size",
        "requested_size",
        "state",
        "frames",
    }
    event = events(snapshot)[-1]
    assert set(event) == {
        "action",
        "addr",
        "size",
        "stream",
        "time_us",
        "compile_context",
        "user_metadata",
        "pool_id",
        "frames",
    }
    assert len(snapshot["device_traces"]) == module.device_count()


def test_segments_and_blocks_add_up_to_the_statistics():
    small, large = allocate(1000), allocate(3 * MIB)
    gone = allocate(5000)
    del gone
    stats = module.memory_stats(0)
    segments = [each for each in module.memory_snapshot() if each["device"] == 0]
    for key, name in [
        ("total_size", "reserved_bytes"),
        ("allocated_size", "allocated_bytes"),
        ("active_size", "active_bytes"),
        ("requested_size", "requested_bytes"),
    ]:
        assert sum(segment[key] for segment in segments) == stats[f"{name}.all.current"]
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
    snapshot = {"segments": segments}
    assert block_of(small, snapshot)["state"] == "active_allocated"
    assert block_of(small, snapshot)["requested_size"] == 1000
    assert block_of(small, snapshot)["size"] == 1024
    assert block_of(large, snapshot)["size"] == 3 * MIB
    assert {segment["segment_type"] for segment in segments} == {"small", "large"}


def test_history_is_what_happened():
    memory._record_memory_history(context=None)
    pool = module.MemPool()  # has nothing cached, whatever ran before
    with module.use_mem_pool(pool):
        tensor = allocate(1000)
    address = tensor.data_ptr()
    del tensor, pool
    seen = [
        (event["action"], event["size"], event["addr"] == address)
        for event in events(memory._snapshot())
    ]
    assert [each for each in seen if each[0] not in ("segment_alloc", "segment_free")] == [
        ("alloc", 1000, True),
        ("free_requested", 1000, True),
        ("free_completed", 1000, True),
    ]
    assert seen[0][:2] == ("segment_alloc", 2 * MIB)
    assert seen[-1][:2] == ("segment_free", 2 * MIB)


def test_events_are_in_the_order_of_time():
    memory._record_memory_history(context=None)
    for _ in range(20):
        allocate(1000)
    times = [event["time_us"] for event in events(memory._snapshot())]
    assert times == sorted(times)


def test_stacks_name_the_function_that_allocated():
    memory._record_memory_history(stacks="python")
    tensor = allocate_in_a_function_with_this_name(1000)
    snapshot = memory._snapshot()
    block = block_of(tensor, snapshot)
    assert names(block["frames"])[:3] == [
        "allocate",
        "allocate_in_a_function_with_this_name",
        "test_stacks_name_the_function_that_allocated",
    ]
    assert block["frames"][0]["filename"] == allocate.__code__.co_filename
    assert block["frames"][0]["line"] == allocate.__code__.co_firstlineno + 1
    (event,) = [each for each in events(snapshot) if each["action"] == "alloc"]
    assert event["frames"] == block["frames"]


def test_stacks_have_frames_of_cpp_when_all_are_wanted():
    memory._record_memory_history(stacks="all")
    tensor = allocate_in_a_function_with_this_name(1000)
    frames = block_of(tensor, memory._snapshot())["frames"]
    assert "allocate_in_a_function_with_this_name" in names(frames)
    assert any("openreg::allocate_block" in name for name in names(frames))
    assert any("at::_ops::empty_memory_format" in name for name in names(frames))


def test_result_of_an_operator_has_the_stack_of_its_call():
    tensor = torch.ones(1000, device=DEVICE)
    memory._record_memory_history(stacks="python")
    result = tensor + 1
    frames = block_of(result, memory._snapshot())["frames"]
    assert names(frames)[0] == "test_result_of_an_operator_has_the_stack_of_its_call"


def test_gradient_has_a_stack_though_another_thread_made_it():
    tensor = torch.ones(1000, device=DEVICE, requires_grad=True)
    memory._record_memory_history(stacks="all")
    (tensor * tensor).sum().backward()
    frames = block_of(tensor.grad, memory._snapshot())["frames"]
    assert any("torch::autograd::Engine" in name for name in names(frames))


@pytest.mark.parametrize(
    ("context", "of_block", "of_alloc", "of_free"),
    [
        (None, False, False, False),
        ("state", True, False, False),
        ("alloc", True, True, "allocate"),
        ("all", True, True, "free"),
    ],
)
def test_context_selects_the_kept_stacks(context, of_block, of_alloc, of_free):
    def free(tensors):
        tensors.clear()

    memory._record_memory_history(context=context, stacks="python")
    held, gone = allocate(1000), [allocate(2000)]
    free(gone)
    snapshot = memory._snapshot()
    assert bool(block_of(held, snapshot)["frames"]) == of_block
    for event in events(snapshot):
        if event["action"] == "alloc":
            assert ("frames" in event) == of_alloc
        elif event["action"].startswith("free"):
            assert ("frames" in event) == bool(of_free)
            assert not of_free or names(event["frames"])[0] == of_free


def test_state_keeps_stacks_without_a_history():
    memory._record_memory_history("state", stacks="python")
    tensor = allocate(1000)
    for _ in range(10):
        allocate(2000)
    snapshot = memory._snapshot()
    assert len(events(snapshot)) == 1
    assert names(block_of(tensor, snapshot)["frames"])[0] == "allocate"


def test_history_keeps_the_latest_events():
    memory._record_memory_history(max_entries=3, context=None)
    for nbytes in (1000, 2000, 3000):
        allocate(nbytes)
    assert [(event["action"], event["size"]) for event in events(memory._snapshot())] == [
        ("alloc", 3000),
        ("free_requested", 3000),
        ("free_completed", 3000),
    ]


def test_history_can_be_made_shorter():
    memory._record_memory_history(context=None)
    for nbytes in (1000, 2000, 3000):
        allocate(nbytes)
    memory._record_memory_history(max_entries=2, context=None)
    assert [event["size"] for event in events(memory._snapshot())] == [3000, 3000]
    tensor = allocate(4000)
    assert [event["size"] for event in events(memory._snapshot())][-1] == 4000
    assert len(events(memory._snapshot())) == 2
    assert tensor.device.type == DEVICE


def test_history_can_be_cleared():
    memory._record_memory_history(context=None)
    tensor = allocate(1000)
    memory._record_memory_history(context=None, clear_history=True)
    assert events(memory._snapshot()) == []
    del tensor
    assert "free_requested" in actions(memory._snapshot())


def test_nothing_is_recorded_after_the_end():
    memory._record_memory_history(stacks="python")
    tensor = allocate(1000)
    memory._record_memory_history(enabled=None)
    other = allocate(1000)
    snapshot = memory._snapshot()
    assert events(snapshot) == []
    assert block_of(tensor, snapshot)["frames"] == block_of(other, snapshot)["frames"] == []


def test_actions_can_be_skipped():
    memory._record_memory_history(context=None, skip_actions=["free_requested", "segment_alloc"])
    allocate(1000)
    assert actions(memory._snapshot()) == ["alloc", "free_completed"]
    with pytest.raises(RuntimeError, match="Unknown TraceEntry action: fee"):
        memory._record_memory_history(skip_actions=["fee"])


def test_unknown_words_are_refused():
    for arguments, sentence in [
        ({"enabled": "some"}, "expected state to be 'state', 'all', or None, got 'some'"),
        ({"context": "free"}, "expected context to be 'state', 'alloc', 'all', or None"),
        ({"stacks": "cpp"}, "expected stacks to be 'python', or 'all', got 'cpp'"),
    ]:
        with pytest.raises(RuntimeError, match=sentence):
            memory._record_memory_history(**arguments)


def test_older_signature_is_understood():
    memory._record_memory_history(
        True, trace_alloc_max_entries=100, trace_alloc_record_context=True
    )
    tensor = allocate(1000)
    assert names(block_of(tensor, memory._snapshot())["frames"])[0] == "allocate"
    memory._record_memory_history(False)
    assert events(memory._snapshot()) == []


def test_snapshot_is_an_event_of_later_snapshots():
    memory._record_memory_history(context=None)
    tensor = allocate(1000)
    first, second = memory._snapshot(), memory._snapshot()
    assert "snapshot" not in actions(first)
    (event,) = [event for event in events(second) if event["action"] == "snapshot"]
    assert event["size"] == module.memory_stats()["active_bytes.all.current"]
    assert tensor.device.type == DEVICE


def test_freed_memory_that_a_stream_still_uses_waits(close_gate):
    memory._record_memory_history(context=None)
    tensor = allocate(1000)
    address = tensor.data_ptr()
    side = module.Stream()
    gate = close_gate(side)
    tensor.record_stream(side)
    del tensor
    snapshot = memory._snapshot()
    states = {
        block["address"]: block["state"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
    }
    assert states[address] == "active_pending_free"
    assert actions(snapshot)[-1] == "free_requested"
    gate.open()
    module.synchronize()
    module.empty_cache()
    completed = [e for e in events(memory._snapshot()) if e["action"] == "free_completed"]
    assert [(event["addr"], event["size"]) for event in completed] == [(address, 1000)]


def test_streams_are_distinguished():
    memory._record_memory_history(context=None)
    side = module.Stream()
    with module.stream(side):
        tensor = allocate(1000)
    snapshot = memory._snapshot()
    (event,) = [event for event in events(snapshot) if event["action"] == "alloc"]
    assert event["stream"] == handle(side) != 0
    assert block_of(tensor, snapshot)["state"] == "active_allocated"


def test_devices_have_histories_of_their_own():
    memory._record_memory_history(context=None)
    tensor = allocate(1000, f"{DEVICE}:1")
    snapshot = memory._snapshot()
    assert tensor.get_device() == 1
    assert actions(snapshot, 0) == []
    assert "alloc" in actions(snapshot, 1)


def test_running_out_is_recorded(python):
    result = python(
        """
        import torch
        from device import DEVICE, memory, module
        memory = module.memory
        memory._record_memory_history(stacks="python")
        def ask_for_too_much():
            torch.empty(100 << 20, dtype=torch.uint8, device=DEVICE)
        try:
            ask_for_too_much()
        except torch.OutOfMemoryError:
            pass
        (event,) = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "oom"]
        print(event["size"] >> 20, event["device_free"] >> 20, event["frames"][0]["name"])
        print("addr" in event)
        """,
        OPENREG_DEVICE_MEMORY="64M",
    )
    assert result.stdout == "100 64 ask_for_too_much\nFalse\n"


def test_events_show_what_the_program_says_of_them():
    memory._record_memory_history(context=None)
    memory._set_memory_metadata("layer 3")
    try:
        assert memory._get_memory_metadata() == "layer 3"
        tensor = allocate(1000)
    finally:
        memory._set_memory_metadata("")
    assert tensor.device.type == DEVICE
    assert [e["user_metadata"] for e in events(memory._snapshot()) if e["action"] == "alloc"] == [
        "layer 3"
    ]


def test_annotations_are_recorded():
    memory._record_memory_history(context=None)
    with torch.profiler.record_function("a part of the program"):
        allocate(1000)
    annotations = [
        (each["name"], each["stage"]) for each in memory._snapshot()["external_annotations"]
    ]
    assert annotations == [("a part of the program", "START"), ("a part of the program", "END")]


def test_stack_of_a_pointer_can_be_asked_for():
    memory._record_memory_history(stacks="python")
    tensor = allocate_in_a_function_with_this_name(1000)
    frames = memory._allocation_traceback(tensor.untyped_storage().data_ptr())
    assert names(frames)[1] == "allocate_in_a_function_with_this_name"
    assert memory._allocation_traceback(tensor.data_ptr() + 512) is None
    assert memory._allocation_traceback(0) is None


def test_threads_record_while_others_look():
    memory._record_memory_history(max_entries=1000, stacks="python")
    stop = threading.Event()

    def work():
        while not stop.is_set():
            torch.ones(100, device=DEVICE) + 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        for event in events(memory._snapshot()):
            assert event["action"] == "snapshot" or "work" in names(event["frames"])
        memory._record_memory_history(max_entries=500, stacks="python", clear_history=True)
    stop.set()
    for thread in threads:
        thread.join()


def test_backward_allocations_have_the_lines_of_the_forward_pass_in_anomaly_mode():
    memory._record_memory_history(stacks="python")
    x = torch.randn(10, 10, device=DEVICE, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=False):
        (x * 2).sum().backward()
    found = [event for event in events(memory._snapshot()) if "forward_frames" in event]
    lines = [line for event in found for line in event["forward_frames"]]
    assert any("(x * 2).sum().backward()" in line for line in lines)
    assert all(event["forward_frames"] for event in found)
