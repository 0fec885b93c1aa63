"""TorchScript programs use streams, events and devices of torch.cuda."""

import io
import re
import threading

import pytest
import torch

from device import DEVICE

if DEVICE != "cuda":  # the programs below are compiled when this file is read
    pytest.skip("needs OPENREG_DEVICE_TYPE=cuda", allow_module_level=True)

pytestmark = [
    pytest.mark.usefixtures("first_device"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]

STREAM = "__torch__.torch.classes.cuda.Stream"
# The operators of PyTorch's CUDA build. Saved programs name them and their arguments.
SCHEMAS = {
    f"cuda::current_stream.device(Device? device) -> {STREAM}",
    f"cuda::current_stream.int(int? val) -> {STREAM}",
    f"cuda::default_stream.device(Device? device) -> {STREAM}",
    f"cuda::default_stream.int(int? val) -> {STREAM}",
    f"cuda::set_stream({STREAM} stream) -> ()",
    "cuda::_current_device() -> int",
    "cuda::_set_device(int val) -> ()",
    "cuda::_exchange_device(int index) -> int",
    "cuda::_maybe_exchange_device(int index) -> int",
    "cuda::device_index(Device device) -> int",
    "cuda::device_count() -> int",
    "cuda::synchronize() -> ()",
    "cuda::synchronize.device(Device? device) -> ()",
    "cuda::synchronize.int(int? val) -> ()",
}


def test_operators_are_those_of_the_cuda_build():
    schemas = {str(schema) for schema in torch._C._jit_get_all_schemas()}
    assert {schema for schema in schemas if schema.startswith("cuda::")} == SCHEMAS


# ---- devices -------------------------------------------------------------------------------------


@torch.jit.script
def use_devices():
    before = torch.cuda.current_device()
    torch.cuda.set_device(1)
    after = torch.cuda.current_device()
    previous = torch.cuda._exchange_device(0)
    ignored = torch.cuda._maybe_exchange_device(-1)
    return before, after, previous, ignored, torch.cuda.current_device(), torch.cuda.device_count()


def test_devices():
    assert use_devices() == (0, 1, 1, -1, 0, torch.cuda.device_count())


@torch.jit.script
def use_a_device_as_context(index: int):
    with torch.cuda.device(index):
        inside = torch.cuda.current_device()
        values = torch.rand(3, device="cuda")  # torch.ones would be a constant of the compiler
    return inside, torch.cuda.current_device(), values


def test_device_as_context():
    inside, outside, values = use_a_device_as_context(1)
    assert (inside, outside, values.device) == (1, 0, torch.device("cuda", 1))


@torch.jit.script
def set_device(index: int):
    torch.cuda.set_device(index)


@pytest.mark.parametrize("index", [60, 127, 1 << 40])
def test_devices_that_do_not_exist(index):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        set_device(index)
    assert torch.cuda.current_device() == 0


def test_negative_devices():
    with pytest.raises(RuntimeError, match="device id must be non-negative!-1"):
        set_device(-1)


# ---- streams -------------------------------------------------------------------------------------


@torch.jit.script
def describe_streams():
    current = torch.cuda.current_stream(torch.device("cuda:1"))
    default = torch.cuda.default_stream(1)
    made = torch.cuda.Stream(torch.device("cuda:1"), -1)
    return current.id(), default.id(), made.id(), made.device, made.device_index()


def test_streams():
    stream = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(stream):
        current, default, made, device, index = describe_streams()
    assert (current, default) == (stream.stream_id, 0)
    assert made not in (current, default)
    assert (device, index) == (torch.device("cuda", 1), 1)
    handle = torch.cuda.Stream(stream_id=made, device_index=1, device_type=1)
    assert handle.priority == -1


@torch.jit.script
def make_stream(priority: int):
    return torch.cuda.Stream(priority=priority).device_index()


def test_priorities():
    torch.cuda.set_device(1)
    assert make_stream(0) == 1
    with pytest.raises(RuntimeError, match="less than or equal to 0, got 3"):
        make_stream(3)


@torch.jit.script
def nest_streams():
    outer, inner = torch.cuda.Stream(torch.device("cuda:0")), torch.cuda.Stream("cuda:1")
    ids = [torch.cuda.current_stream(torch.device("cuda:0")).id()]
    devices = [torch.cuda.current_device()]
    with torch.cuda.stream(outer):
        ids.append(torch.cuda.current_stream(torch.device("cuda:0")).id())
        with torch.cuda.stream(inner):
            ids.append(torch.cuda.current_stream(torch.device("cuda:1")).id())
            devices.append(torch.cuda.current_device())
        with torch.cuda.stream(None):
            ids.append(torch.cuda.current_stream(torch.device("cuda:0")).id())
        devices.append(torch.cuda.current_device())
    ids.append(torch.cuda.current_stream(torch.device("cuda:0")).id())
    return ids, devices, outer.id(), inner.id()


def test_contexts_of_streams_nest():
    ids, devices, outer, inner = nest_streams()
    assert ids == [0, outer, inner, outer, 0]
    assert devices == [0, 1, 0]


def test_compiler_keeps_changes_of_the_device_and_the_stream():
    def change(index: int, values):
        torch.cuda._exchange_device(index)
        torch.cuda._maybe_exchange_device(index)
        torch.cuda.set_device(index)
        torch.cuda.set_stream(torch.cuda.default_stream(index))
        torch.cuda.synchronize(index)
        return values + 1

    compiled = torch.jit.script(change)
    compiled(0, torch.ones(1))
    compiled(0, torch.ones(1))  # optimized
    graph = torch.jit.last_executed_optimized_graph()
    names = re.findall(r"cuda::(\w+)\(", str(graph))
    assert {
        "_exchange_device",
        "_maybe_exchange_device",
        "_set_device",
        "set_stream",
        "synchronize",
    } <= set(names)


# ---- order ---------------------------------------------------------------------------------------


@torch.jit.script
def is_done(index: int):
    return torch.cuda.current_stream(index).query()


@torch.jit.script
def wait_for_device(index: int):
    torch.cuda.synchronize(index)


@torch.jit.script
def wait_for_named_device():
    torch.cuda.synchronize("cuda:1")
    torch.cuda.synchronize(torch.device("cuda"))
    torch.cuda.synchronize()


@torch.jit.script
def wait_for_stream(index: int):
    torch.cuda.current_stream(index).synchronize()


@torch.jit.script
def wait_for_event(index: int):
    event = torch.cuda.Event()
    assert event.query()  # nothing was recorded
    event.record(torch.cuda.current_stream(index))
    event.synchronize()
    assert event.query()


@pytest.fixture
def open_soon(close_gate):
    """Return a function that queues an addition behind a gate, which another thread opens."""
    threads = []

    def queue(index):
        values = torch.zeros(2, device=f"cuda:{index}")
        values += 1  # the first launch of a kind is not queued
        gate = close_gate(torch.cuda.current_stream(index))
        values += 1
        busy = not is_done(index)
        threads.append(threading.Thread(target=gate.open))
        threads[-1].start()
        assert busy
        return values

    yield queue
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("wait", [wait_for_device, wait_for_stream, wait_for_event])
def test_waits_of_the_host(wait, index, open_soon):
    values = open_soon(index)
    wait(index)
    assert is_done(index)
    assert values.tolist() == [2, 2]


def test_waits_for_named_devices(open_soon):
    first, second = open_soon(0), open_soon(1)
    wait_for_named_device()
    assert is_done(0) and is_done(1)
    assert first.tolist() == second.tolist() == [2, 2]


@torch.jit.script
def order_streams(first: torch.classes.cuda.Stream, second: torch.classes.cuda.Stream):
    event = torch.cuda.Event(False, False, False)
    first.record_event(event)
    second.wait_event(event)
    return first.query(), second.query(), event.query()


@torch.jit.script
def make_streams():
    return torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()


def as_python(stream):
    return torch.cuda.Stream(stream_id=stream.id(), device_index=0, device_type=1)


def test_a_stream_waits_for_an_event(close_gate):
    first, second, third = make_streams()
    gate = close_gate(as_python(first))
    assert order_streams(first, second) == (False, False, False)
    third.wait_stream(second)
    assert not third.query()
    gate.open()
    third.synchronize()
    assert first.query() and second.query() and third.query()


@torch.jit.script
def wait_on(event: torch.classes.cuda.Event, stream: torch.classes.cuda.Stream):
    event.wait(stream)
    return stream.query()


def test_an_event_makes_a_stream_wait(close_gate):
    first, second, _ = make_streams()
    gate = close_gate(as_python(first))
    event = torch.classes.cuda.Event(False, False, False)
    event.record(first)
    assert not wait_on(event, second)
    gate.open()
    second.synchronize()
    assert event.query()


@torch.jit.script
def measure(stream: torch.classes.cuda.Stream, timed: bool):
    begin, end = torch.cuda.Event(timed, False, False), torch.cuda.Event(timed, False, False)
    begin.record(stream)
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end)


def test_time_between_events():
    stream, _, _ = make_streams()
    assert measure(stream, True) >= 0
    with pytest.raises(RuntimeError, match="created with argument 'enable_timing=True'"):
        measure(stream, False)
    with pytest.raises(RuntimeError, match="for other processes cannot measure time"):
        torch.classes.cuda.Event(True, False, True)


# ---- programs ------------------------------------------------------------------------------------


class Overlap(torch.nn.Module):
    """Computes on a stream of its own."""

    def forward(self, a, b):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream(a.device))
        with torch.cuda.stream(side):
            on_side = torch.cuda.current_stream(a.device).id() == side.id()
            product = a @ b
        torch.cuda.current_stream(a.device).wait_stream(side)
        return on_side, product


def test_saved_program():
    a, b = torch.rand(40, 50, device="cuda:1"), torch.rand(50, 60, device="cuda:1")
    file = io.BytesIO()
    torch.cuda.set_device(1)
    torch.jit.save(torch.jit.script(Overlap()), file)
    file.seek(0)
    on_side, product = torch.jit.load(file)(a, b)
    assert on_side
    assert torch.equal(product, a @ b)


def test_traced_program():
    def program(x):
        side = torch.cuda.Stream(x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side):
            y = x * 2 + torch.cuda.current_device()
        torch.cuda.synchronize()
        return y

    traced = torch.jit.trace(program, torch.ones(3, device="cuda"))
    assert traced(torch.full((3,), 4.0, device="cuda")).tolist() == [8, 8, 8]


def test_program_that_asks_for_cuda():
    def program():
        if torch.cuda.is_available():
            return torch.ones(2, device="cuda")
        return torch.ones(2)

    traced = torch.jit.trace(program, ())
    assert traced().device == torch.device("cuda", 0)
