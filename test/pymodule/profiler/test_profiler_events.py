"""Work on devices as events of a profile: names, tracks, times and links."""

import threading

import pytest
import torch
from recording import CALLS, DEVICE_ACTIVITY, Trace, contains, end, recorded, square, track
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, record_function

from device import DEVICE, module


def number(stream):
    return stream.stream_id


def test_activity_of_the_devices_is_supported():
    assert torch.profiler.supported_activities() == {ProfilerActivity.CPU, DEVICE_ACTIVITY}


def test_profile_without_activities_has_the_devices():
    x = square()
    with torch.profiler.profile() as profiler:
        x @ x
    assert any(event.kernels for event in profiler.events())


def test_launch_is_an_event_of_its_stream(tmp_path):
    x, y = square(), square(1)
    side = module.Stream()

    def work():
        x @ x
        with module.stream(side):
            x.relu()
        y.exp()

    trace = Trace(recorded(work), tmp_path)
    default = number(module.default_stream())
    assert {event["name"]: track(event) for event in trace.work()} == {
        "mm_gemm_kernel": (0, default),
        "relu_kernel": (0, number(side)),
        "exp_kernel": (1, default),
    }


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: (square(), torch.ones(8, 8)), "Memcpy HtoD (Pageable -> Device)"),
        (lambda: (square(), torch.ones(8, 8).pin_memory(DEVICE)), "Memcpy HtoD (Pinned -> Device)"),
        (lambda: (torch.ones(8, 8), square()), "Memcpy DtoH (Device -> Pageable)"),
        (lambda: (square(1), square()), "Memcpy PtoP (Device -> Device)"),
        (lambda: (square(size=64), square(size=64)), "Memcpy DtoD (Device -> Device)"),
    ],
)
@pytest.mark.filterwarnings("ignore:The argument 'device' of Tensor.pin_memory")
def test_copy_has_kind_bytes_and_rate(tmp_path, make, name):
    to, source = make()
    (event,) = Trace(recorded(lambda: to.copy_(source, non_blocking=True)), tmp_path).work()
    assert (event["name"], event["cat"]) == (name, "gpu_memcpy")
    assert event["args"]["bytes"] == to.nbytes
    rate = to.nbytes / (event["dur"] * 1000)
    assert event["args"]["memory bandwidth (GB/s)"] == pytest.approx(rate, rel=0.01)


def test_item_is_a_copy_to_the_host(tmp_path):
    x = square()[0, 0]
    (event,) = Trace(recorded(x.item), tmp_path).work()
    assert (event["name"], event["args"]["bytes"]) == ("Memcpy DtoH (Device -> Pageable)", 4)


def test_zeroing_is_a_memset(tmp_path):
    x = square()
    (event,) = Trace(recorded(x.zero_), tmp_path).work()
    assert (event["name"], event["cat"]) == ("Memset (Device)", "gpu_memset")
    assert event["args"]["bytes"] == x.nbytes


def test_random_numbers_are_a_kernel(tmp_path):
    x = square()
    (event,) = Trace(recorded(x.normal_), tmp_path).work()
    assert event["name"] == "normal__kernel"


def test_inline_work_is_recorded(tmp_path, nothing_queued):
    x = square()
    trace = Trace(recorded(lambda: x @ x), tmp_path)
    kernel = trace.one("mm_gemm_kernel")
    assert kernel["args"]["done by"] == "caller"
    call = trace.calls()[kernel["args"]["correlation"]]
    assert (call["ts"], call["dur"]) == (kernel["ts"], kernel["dur"])


def test_queued_work_has_the_time_of_its_execution(tmp_path, close_gate):
    x = square()
    x @ x, x + x  # similar ones ran before, so these are queued

    def work():
        gate = close_gate()
        with record_function("launching"):
            x @ x
            x + x
        gate.open()

    trace = Trace(recorded(work), tmp_path)
    first, second = trace.one("mm_gemm_kernel"), trace.one("add_kernel")
    assert {first["args"]["done by"], second["args"]["done by"]} == {"worker"}
    launching = [e for e in trace.of("user_annotation") if e["name"] == "launching"]
    assert end(launching[0]) <= first["ts"]
    assert end(first) <= second["ts"]


def test_arrow_leads_from_the_operator_to_its_work(tmp_path, close_gate):
    x = square()
    x @ x

    def work():
        gate = close_gate()
        x @ x
        gate.open()

    trace = Trace(recorded(work), tmp_path)
    kernel = trace.one("mm_gemm_kernel")
    arrows = {(e["ph"], e["id"]): e for e in trace.of("ac2g")}
    number = kernel["args"]["correlation"]
    begins, ends = arrows["s", number], arrows["f", number]
    assert (track(ends), ends["ts"]) == (track(kernel), kernel["ts"])
    operator = trace.one("aten::mm")
    assert track(begins) == track(operator)
    assert operator["ts"] <= begins["ts"] <= end(operator)
    assert kernel["args"]["External id"] == operator["args"]["External id"]


def test_numbers_of_links_are_not_used_twice():
    x = square()
    seen = set()
    for _ in range(2):
        for event in recorded(lambda: x @ x).profiler.kineto_results.events():
            if event.correlation_id() and event.device_type() == torch.autograd.DeviceType.CPU:
                assert event.correlation_id() not in seen
                seen.add(event.correlation_id())
    assert seen


def test_operators_have_their_kernels():
    x, y = square(), square(1)

    def work():
        x @ x
        y @ y

    profiler = recorded(work)
    operators = [event for event in profiler.events() if event.name == "aten::mm"]
    assert [[kernel.name for kernel in each.kernels] for each in operators] == [
        ["mm_gemm_kernel"]
    ] * 2
    assert [each.kernels[0].device for each in operators] == [0, 1]
    assert [each.device_time for each in operators] == [
        each.kernels[0].duration for each in operators
    ]


def test_backward_has_its_kernels():
    x = square().requires_grad_()
    loss = (x @ x).sum()
    profiler = recorded(loss.backward)
    backward = [each for each in profiler.events() if each.name == "MmBackward0"]
    assert sum(each.device_time_total for each in backward) > 0


def test_table_has_the_time_of_the_device():
    x = square()

    def work():
        for _ in range(3):
            x @ x

    profiler = recorded(work)
    table = {(each.key, str(each.device_type)): each for each in profiler.key_averages()}
    operator = table["aten::mm", "DeviceType.CPU"]
    (kernel,) = [each for (key, _), each in table.items() if key == "mm_gemm_kernel"]
    assert kernel.count == operator.count == 3
    assert kernel.self_device_time_total == pytest.approx(operator.self_device_time_total)
    column = f"Self {DEVICE.upper()} time total"
    assert column in profiler.key_averages().table()


def test_the_end_of_a_profile_waits_for_all_devices(close_gate):
    y = square(1, size=256)
    y @ y

    def work():
        gate = close_gate(module.default_stream(1))
        y @ y
        gate.open()

    profiler = recorded(work)
    assert [e.device_index for e in profiler.events() if e.name == "mm_gemm_kernel"] == [1]


def test_work_submitted_before_the_profile_has_no_operator(tmp_path, close_gate):
    x = square()
    x @ x
    gate = close_gate()
    x @ x
    trace = Trace(recorded(gate.open, behind_all=False), tmp_path)
    assert "mm_gemm_kernel" not in {event["name"] for event in trace.all}
    assert {event["name"] for event in trace.work()} == {"unnamed_kernel"}
    assert trace.of("ac2g") == []


def test_profile_of_devices_only_names_kernels():
    x = square()

    def work():
        x @ x
        x.normal_()

    profiler = recorded(work, activities=[DEVICE_ACTIVITY])
    names = [event.name for event in profiler.events()]
    assert {"mm_gemm_kernel", "normal__kernel"} <= set(names)
    assert not any(name.startswith("aten::") for name in names)


def test_profile_of_the_host_only_has_no_device_events(tmp_path):
    x = square()
    profiler = recorded(lambda: x @ x, activities=[ProfilerActivity.CPU])
    assert Trace(profiler, tmp_path).work() == []


def test_failing_launch_is_recorded():
    x = square()

    def work():
        with pytest.raises(RuntimeError):
            x @ square(size=3)
        x @ x

    profiler = recorded(work)
    assert "mm_gemm_kernel" in {event.name for event in profiler.events()}


def test_profiles_are_independent():
    x = square()
    first = recorded(lambda: x @ x)
    second = recorded(lambda: x + x)
    assert "mm_gemm_kernel" in {event.name for event in first.events()}
    assert "mm_gemm_kernel" not in {event.name for event in second.events()}


def test_ranges_of_the_program_are_on_the_devices_tracks(tmp_path):
    x, y = square(), square(1)

    def work():
        with record_function("outer"):
            x @ x
            with record_function("inner"):
                x.relu()
            y.exp()
        x.sin()

    trace = Trace(recorded(work), tmp_path)
    ranges = {(e["name"], e["pid"]): e for e in trace.of("gpu_user_annotation")}
    assert ranges.keys() == {("outer", 0), ("inner", 0), ("outer", 1)}
    assert contains(ranges["outer", 0], trace.one("mm_gemm_kernel"))
    assert contains(ranges["outer", 0], ranges["inner", 0])
    assert contains(ranges["inner", 0], trace.one("relu_kernel"))
    assert contains(ranges["outer", 1], trace.one("exp_kernel"))
    assert end(ranges["outer", 0]) <= trace.one("sin_kernel")["ts"]


@pytest.mark.skipif(DEVICE != "cuda", reason="torch.cuda.nvtx")
def test_nvtx_ranges_are_ranges(tmp_path):
    x = square()

    def work():
        module.nvtx.range_push("pushed")
        with module.nvtx.range("within"):
            x @ x
        assert module.nvtx.range_pop() == 0

    trace = Trace(recorded(work), tmp_path)
    assert {e["name"] for e in trace.of("gpu_user_annotation")} == {"pushed", "within"}


@pytest.mark.skipif(DEVICE != "cuda", reason="torch.cuda.nvtx")
def test_nvtx_mark_is_a_moment_of_the_host(tmp_path):
    trace = Trace(recorded(lambda: module.nvtx.mark("here")), tmp_path)
    assert trace.one("here")["cat"] == "user_annotation"


def test_collection_can_be_toggled(tmp_path):
    x = square()
    module.synchronize()
    with torch.profiler.profile() as profiler:
        x @ x
        profiler.toggle_collection_dynamic(False, [DEVICE_ACTIVITY])
        x.relu()
        profiler.toggle_collection_dynamic(True, [DEVICE_ACTIVITY])
        x.exp()
    trace = Trace(profiler, tmp_path)
    assert [event["name"] for event in trace.work()] == ["mm_gemm_kernel", "exp_kernel"]
    assert {"aten::mm", "aten::relu", "aten::exp"} <= {e["name"] for e in trace.of("cpu_op")}


def test_collection_is_not_toggled_without_a_profile(tmp_path):
    x = square()
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        profiler.toggle_collection_dynamic(True, [DEVICE_ACTIVITY])
        x @ x
    assert Trace(profiler, tmp_path).work() == []


def test_stream_wait_is_an_event(tmp_path, close_gate):
    x = square()
    side = module.Stream()

    def work():
        gate = close_gate()
        side.wait_stream(module.current_stream())
        with module.stream(side):
            x @ x
        gate.open()
        side.synchronize()

    x @ x
    profiler = recorded(work)
    trace = Trace(profiler, tmp_path)
    wait = trace.one("Stream Wait Event")
    assert (wait["cat"], track(wait)) == ("cuda_sync", (0, number(side)))
    assert (wait["args"]["wait_on_device"], wait["args"]["wait_on_stream"]) == (0, 0)
    assert end(wait) <= trace.one("mm_gemm_kernel")["ts"]
    gate = [event for event in trace.work() if event["name"] == "unnamed_kernel"]
    assert end(gate[0]) <= end(wait)
    assert "Stream Wait Event" not in {event.key for event in profiler.key_averages()}


def test_queue_depth_and_busy_time_are_counters(tmp_path, close_gate):
    x = square()
    x + x

    def work():
        gate = close_gate()
        for _ in range(3):
            x + x
        gate.open()

    trace = Trace(recorded(work), tmp_path)
    depth = trace.counts("stream 0 queue depth")
    assert depth[-6:] == [3, 2, 2, 1, 1, 0]
    busy = trace.counts("stream 0 busy ms")
    assert busy == sorted(busy)
    times = [event["dur"] for event in trace.work()]
    assert busy[-1] == pytest.approx(sum(times) / 1000, rel=0.01)


def test_tracks_have_names(tmp_path):
    x = square(1)
    trace = Trace(recorded(lambda: x @ x), tmp_path)
    names = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"]
        for e in trace.all
        if e["ph"] == "M" and "name" in e["args"]
    }
    assert names["process_name", 1, 0] == f"{DEVICE}:1 NVIDIA H100 80GB HBM3"
    assert names["thread_name", 1, 0] == "default stream"
    properties = trace.file["deviceProperties"]
    assert [each["id"] for each in properties] == [0, 1]
    assert properties[0]["numSms"] == 132


# ---- waits of the host ---------------------------------------------------------------------------

WAITS = {
    "device": (lambda x: module.synchronize(1), "DeviceSynchronize", "Context Sync"),
    "stream": (
        lambda x: module.current_stream(1).synchronize(),
        "StreamSynchronize",
        "Stream Sync",
    ),
    "event": (
        lambda x: module.current_stream(1).record_event().synchronize(),
        "EventSynchronize",
        "Event Sync",
    ),
    "item": (lambda x: x[0, 0].item(), "StreamSynchronize", "Stream Sync"),
    "copy to the host": (lambda x: x.cpu(), "StreamSynchronize", "Stream Sync"),
    "nonzero": (lambda x: x.nonzero(), "StreamSynchronize", "Stream Sync"),
}


@pytest.mark.parametrize("name", WAITS)
def test_the_host_waits_until_the_work_is_done(tmp_path, name, close_gate):
    wait, call, sync = WAITS[name]
    with module.device(1):
        x = square(1, size=64)
        x.relu()
        wait(x)  # the first launches of a kind are waited for in any case
        opener = threading.Timer(0.1, lambda: gate.open())

        def work():
            nonlocal x
            x = x.relu()
            opener.start()
            wait(x)

        gate = close_gate()
        trace = Trace(recorded(work, behind_all=False), tmp_path)
    opener.join()
    called = [event for event in trace.of(*CALLS) if event["name"].endswith(call)]
    longest = max(called, key=lambda event: event["dur"])
    assert longest["dur"] > 50_000 and longest["name"] == f"{DEVICE}{call}"
    assert not trace.of("cuda_sync")
    if DEVICE != "cuda":  # PyTorch passes the option on for CUDA only
        return
    options = {"experimental_config": _ExperimentalConfig(enable_cuda_sync_events=True)}
    trace = Trace(recorded(lambda: wait(x.relu()), **options), tmp_path)
    found = {(event["name"], event["pid"]) for event in trace.of("cuda_sync")}
    assert (sync, 1) in found


def test_a_copy_that_does_not_block_is_no_wait(tmp_path):
    x, host = square(), torch.empty(8, 8).pin_memory(DEVICE)
    profiler = recorded(lambda: host.copy_(x, non_blocking=True))
    names = [event["name"] for event in Trace(profiler, tmp_path).of(*CALLS)]
    assert f"{DEVICE}StreamSynchronize" not in names


def test_waits_are_in_the_table():
    x = square()
    table = recorded(lambda: x.sum().item()).key_averages()
    (row,) = [row for row in table if row.key == f"{DEVICE}StreamSynchronize"]
    assert row.count == 1
