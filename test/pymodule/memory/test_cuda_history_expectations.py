"""The behaviour of the history of CUDA's allocator: the stacks and the events.

Like `test_cuda_expectations`, for snapshots and recordings. `DEVICE` is the only place that names
the device.
"""

import json
import random

import pytest
import torch
from offered import PINNED_THRESHOLDS
from torch.cuda._memory_viz import _profile_to_snapshot, segment_plot, trace_plot

from device import DEVICE, MIB, memory, module

pytestmark = pytest.mark.usefixtures("fresh_memory")


def reserving():
    """Allocate a size for which no existing segment has room."""
    return torch.empty(30 * MIB, dtype=torch.uint8, device=DEVICE)


def events():
    return memory._snapshot()["device_traces"][0]


def names(event):
    return [frame["name"] for frame in event.get("frames", [])]


def block_of(tensor, snapshot):
    address = tensor.untyped_storage().data_ptr()
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    (block,) = [block for block in blocks if block["address"] == address]
    return block


# ---- stacks --------------------------------------------------------------------------------------


def test_state_alone_keeps_the_stack_of_each_block_among_many():
    """Freeing, merging and reusing neighbours does not change it."""
    memory._record_memory_history("state", stacks="python")
    torch.rand(2 * 311, 411, device=DEVICE)
    before = torch.rand(310, 410, device=DEVICE)
    tensor = torch.rand(311, 411, device=DEVICE)
    many = [torch.rand(128, device=DEVICE) for _ in range(1000)]
    random.Random(3).shuffle(many)
    while many:
        many.pop()
    torch.rand(128 * 5, device=DEVICE)
    snapshot = memory._snapshot()
    assert all("frames" in segment for segment in snapshot["segments"])
    block = block_of(tensor, snapshot)
    assert block["requested_size"] == 311 * 411 * 4
    assert block["frames"][0]["filename"] == __file__
    assert names(block)[0] == "test_state_alone_keeps_the_stack_of_each_block_among_many"
    del before, tensor
    reserving()
    module.empty_cache()
    assert events()[-1]["action"] == "segment_free"


@pytest.mark.parametrize(
    ("context", "stacks"), [("all", "all"), ("all", "python"), (None, "python")]
)
def test_plots_have_the_stacks_that_were_asked_for(context, stacks):
    memory._record_memory_history("all", context=context, stacks=stacks)
    tensor = torch.rand(128, 128, device=DEVICE)
    assert (tensor * tensor + tensor * tensor).device == tensor.device
    snapshot = memory._snapshot()
    text = json.dumps(snapshot)
    assert ("test_plots_have_the_stacks" in text) == (context is not None)
    assert ("::rand" in text) == (stacks == "all")
    assert str(128 * 128 * 4) in text
    for plot in (trace_plot, segment_plot):
        assert len(plot(snapshot)) > 1000
    assert trace_plot(snapshot, filter_freed=True)


@pytest.mark.parametrize("context", ["state", "alloc", "all"])
def test_freed_memory_has_the_stack_of(context):
    tensors = []

    def allocating():
        tensors.append(torch.rand(3, 4, device=DEVICE))

    def freeing():
        tensors.clear()

    memory._record_memory_history(context=context)
    allocating()
    freeing()
    text = json.dumps(events())
    assert ("freeing" in text) == (context == "all")
    assert ("allocating" in text) == (context != "state")


def test_context_may_change_while_recording():
    def with_a_stack():
        return torch.rand(4, 4, device=DEVICE)

    def without_one():
        return torch.rand(3, 4, device=DEVICE)

    def with_a_stack_again():
        return torch.rand(4, 4, device=DEVICE)

    memory._record_memory_history(context="all", stacks="python")
    kept = [with_a_stack()]
    memory._record_memory_history(context=None)
    kept.append(without_one())
    memory._record_memory_history(context="all", stacks="python")
    kept.append(with_a_stack_again())
    text = json.dumps(memory._snapshot())
    assert "with_a_stack" in text and "with_a_stack_again" in text
    assert "without_one" not in text


@pytest.mark.parametrize("context", ["state", "alloc", "all"])
@pytest.mark.parametrize("expandable", [False, True])
def test_empty_cache_is_in_the_stack_of_a_segment_that_it_released(context, expandable):
    memory._set_allocator_settings(f"expandable_segments:{expandable}")
    memory._record_memory_history(context=context)
    reserving()
    module.empty_cache()
    given_back = events()[-1]
    assert given_back["action"] == ("segment_unmap" if expandable else "segment_free")
    assert ("empty_cache" in names(given_back)) == (context == "all")


@pytest.mark.parametrize("expandable", [False, True])
def test_released_segment_shows_who_reserved_it(expandable):
    """Where stacks of frees are not kept, as with blocks."""
    memory._set_allocator_settings(f"expandable_segments:{expandable}")
    memory._record_memory_history(context="alloc", stacks="python")
    reserving()
    module.empty_cache()
    reserved, *_, given_back = events()
    assert names(reserved)[0] == "reserving"
    assert names(given_back)[:1] == ["reserving"]


def test_script_has_a_frame_of_its_own():
    @torch.jit.script
    def scripted(device: torch.device):
        return torch.rand(311, 411, device=device)

    memory._record_memory_history("state", stacks="python")
    tensor = scripted(torch.device(DEVICE))
    assert names(block_of(tensor, memory._snapshot()))[0] == "scripted"


def test_snapshot_shows_every_setting():
    thresholds = {"max_cached_size", "max_round_threshold"} if PINNED_THRESHOLDS else set()
    assert set(memory._snapshot()["allocator_settings"]) == thresholds | {
        "PYTORCH_CUDA_ALLOC_CONF",
        "max_split_size",
        "garbage_collection_threshold",
        "expandable_segments",
        "pinned_num_register_threads",
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "roundup_power2_divisions",
        "graph_capture_record_stream_reuse",
    }


# ---- events --------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", ["state", "alloc", "all"])
def test_every_event_shows_what_the_program_says(context):
    memory._set_memory_metadata("of the first layer")
    memory._record_memory_history(context=context)
    reserving()
    module.empty_cache()
    memory._set_memory_metadata("")
    recorded = events()
    assert [event["action"] for event in recorded] == [
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "segment_free",
    ]
    assert {event["user_metadata"] for event in recorded} == {"of the first layer"}


def test_events_show_the_compiled_region_that_they_happened_in():
    def function(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    tensor = torch.ones(100, device=DEVICE)
    compiled(tensor)
    memory._record_memory_history(context=None, compile_context=True)
    outside = torch.ones(5, device=DEVICE)
    compiled(tensor)
    regions = [event["compile_context"] for event in events() if event["action"] == "alloc"]
    assert regions == [
        "N/A",
        "Torch-Compiled Region: 0/0",
        "Torch-Compiled Region: 1/0",
    ]
    assert len(outside) == 5


ACTIONS = ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]


@pytest.mark.parametrize(
    "skipped",
    [
        None,
        [],
        ["free_requested"],
        ["free_requested", "free_completed"],
        ["alloc"],
        ["segment_alloc", "segment_free"],
        ["segment_map", "segment_unmap"],  # these do not occur, but may be named
    ],
)
def test_actions_that_are_named_are_left_out(skipped):
    memory._record_memory_history(context="all", stacks="python", skip_actions=skipped)
    reserving()
    module.empty_cache()
    expected = [action for action in ACTIONS if action not in (skipped or [])]
    assert [event["action"] for event in events()] == expected


@pytest.mark.parametrize(
    "skipped",
    [
        ["segment_alloc"],
        ["segment_map"],
        ["segment_unmap", "alloc"],
    ],
)
def test_actions_of_expandable_segments_are_left_out(skipped):
    memory._set_allocator_settings("expandable_segments:True")
    memory._record_memory_history(context=None, skip_actions=skipped)
    reserving()
    module.empty_cache()
    expected = [action.replace("segment_alloc", "segment_map") for action in ACTIONS]
    expected = [action.replace("segment_free", "segment_unmap") for action in expected]
    expected = [action for action in expected if action not in skipped]
    assert [event["action"] for event in events()] == expected


def test_events_have_their_pool():
    pool = module.MemPool()
    memory._record_memory_history(context=None)
    outside = reserving()
    with module.use_mem_pool(pool):
        inside = reserving()
    of_pools = [(event["action"], event["pool_id"]) for event in events()]
    assert of_pools == [
        ("segment_alloc", (0, 0)),
        ("alloc", (0, 0)),
        ("segment_alloc", pool.id),
        ("alloc", pool.id),
    ]
    assert inside.numel() == outside.numel()


def test_destroyed_pools_are_released_in_the_order_of_their_hash(python):
    """In the order of CUDA's hash table: the second pool comes before the first."""
    result = python(
        f"""
        import torch
        module = torch.{DEVICE}
        module.memory._record_memory_history(context=None)
        held = []
        for _ in range(2):
            pool = module.MemPool()
            with module.use_mem_pool(pool):
                held.append(torch.empty(21 << 20, dtype=torch.uint8, device={DEVICE!r}))
            print(pool.id[1])
            del pool
        held.clear()
        module.empty_cache()
        events = module.memory._snapshot()["device_traces"][0]
        print(*(event["pool_id"][1] for event in events if event["action"] == "segment_free"))
        """
    )
    assert result.stdout == "1\n2\n2 1\n"


def test_memory_profile_can_be_shown_with_its_categories():
    with torch.profiler.profile(with_stack=True, profile_memory=True, record_shapes=True) as prof:
        tensor = torch.rand(128, 128, device=DEVICE)
        assert (tensor * tensor + tensor * tensor).device == tensor.device
    text = json.dumps(_profile_to_snapshot(prof))
    assert "test_cuda_history_expectations.py" in text
    assert "test_memory_profile_can_be_shown" in text
    assert "category" in text
