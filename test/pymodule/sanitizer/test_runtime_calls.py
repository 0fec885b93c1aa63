"""The sanitizer sees the order and the accesses of calls of the CUDA runtime.

The programs here call the runtime's library as C++ extensions do. PyTorch's operators run on the
same streams.
"""

import ctypes
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_openreg
import torch_openreg._C as C
from torch_openreg.sanitizer.finding import from_dict
from torch_openreg.sanitizer.text import block as text_of

from device import DEVICE, module

LIBRARIES = Path(torch_openreg.__file__).parent / "lib"
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = 1, 2, 3, 4
NON_BLOCKING, WITHOUT_TIMING = 1, 2
COUNT = 1 << 14  # floats, in 16 pages
BYTES = 4 * COUNT
NOT_READY = 600


class Runtime:
    """The functions of a CUDA runtime, without "cuda" in their names. Each call must succeed."""

    def __init__(self, major):
        self.library = ctypes.CDLL(str(LIBRARIES / f"openreg_cudart_{major}.so"))

    def __getattr__(self, name):
        function = getattr(self.library, f"cuda{name}")

        def call(*arguments):
            error = function(*arguments)
            assert error == 0, f"cuda{name} returned {error}"

        return call

    def is_ready(self, name, argument):
        """Call a function that asks whether an event or a stream is done."""
        error = getattr(self.library, f"cuda{name}")(argument)
        assert error in (0, NOT_READY)
        return error == 0

    def make(self, name, *arguments):
        """Call a function that returns a pointer through its first argument."""
        result = ctypes.c_void_p()
        getattr(self, name)(ctypes.byref(result), *arguments)
        return result

    def event(self):
        return self.make("EventCreateWithFlags", WITHOUT_TIMING)


@pytest.fixture(params=[12, 13])
def runtime(request):
    return Runtime(request.param)


@pytest.fixture(autouse=True)
def watched():
    """Run the sanitizer during a test, and return the list of reported findings."""
    findings = []
    kinds = ["race", "use after free", "host access", "uninitialised read", "unordered event"]
    C.sanitizer_start(findings.append, kinds, False)
    yield findings
    for index in range(module.device_count()):
        module.synchronize(index)
    C.sanitizer_stop()


def found():
    return [each["kind"] for each in C.sanitizer_findings()]


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def size(count):
    return ctypes.c_size_t(count)


def handle(stream):
    """Return the cudaStream_t of a stream of PyTorch."""
    make = ctypes.CDLL(str(LIBRARIES / "libopenreg.so")).openreg_stream_make_handle
    make.restype = ctypes.c_size_t
    return ctypes.c_void_p(make(stream.device_index, stream.stream_id))


def ones(*sizes):
    """Return a tensor whose content all streams may use."""
    tensor = torch.ones(*sizes, device=DEVICE)
    module.synchronize()
    return tensor


# ---- order ---------------------------------------------------------------------------------------

# What a program does between work on two streams. The first ones order them.


def record_and_wait(runtime, first, second):
    event = runtime.event()
    runtime.EventRecord(event, first)
    runtime.StreamWaitEvent(second, event, 0)
    runtime.EventDestroy(event)


def synchronize_with_event(runtime, first, second):
    event = runtime.event()
    runtime.EventRecord(event, first)
    runtime.EventSynchronize(event)


def query_event(runtime, first, second):
    event = runtime.event()
    runtime.EventRecord(event, first)
    while not runtime.is_ready("EventQuery", event):
        pass


def synchronize_stream(runtime, first, second):
    runtime.StreamSynchronize(first)


def query_stream(runtime, first, second):
    while not runtime.is_ready("StreamQuery", first):
        pass


def synchronize_device(runtime, first, second):
    runtime.DeviceSynchronize()


def free_memory(runtime, first, second):
    runtime.Free(runtime.make("Malloc", size(64)))


def free_host_memory(runtime, first, second):
    runtime.FreeHost(runtime.make("HostAlloc", size(64), 0))


def copy_to_pageable_memory(runtime, first, second):
    memory, host = runtime.make("Malloc", size(16)), torch.zeros(4)
    runtime.MemcpyAsync(address(host), memory, size(16), DEVICE_TO_HOST, first)


def launch_host_function(runtime, first, second):
    called = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: called.set())
    runtime.LaunchHostFunc(first, function, None)
    called.wait()


def record_only(runtime, first, second):
    event = runtime.event()
    runtime.EventRecord(event, first)


def wait_for_an_event_that_was_never_recorded(runtime, first, second):
    runtime.StreamWaitEvent(second, runtime.event(), 0)


def wait_on_the_first_stream(runtime, first, second):
    event = runtime.event()
    runtime.EventRecord(event, second)
    runtime.StreamWaitEvent(first, event, 0)


def synchronize_the_second_stream(runtime, first, second):
    runtime.StreamSynchronize(second)


def synchronize_another_device(runtime, first, second):
    runtime.SetDevice(1)
    runtime.DeviceSynchronize()
    runtime.SetDevice(0)


def copy_from_pageable_memory(runtime, first, second):
    memory, host = runtime.make("Malloc", size(BYTES)), torch.zeros(COUNT)
    runtime.MemcpyAsync(memory, address(host), size(BYTES), HOST_TO_DEVICE, first)


ORDERING = [
    record_and_wait,
    synchronize_with_event,
    query_event,
    synchronize_stream,
    query_stream,
    synchronize_device,
    free_memory,
    free_host_memory,
    copy_to_pageable_memory,
    launch_host_function,
]
NOT_ORDERING = [
    record_only,
    wait_for_an_event_that_was_never_recorded,
    wait_on_the_first_stream,
    synchronize_the_second_stream,
    synchronize_another_device,
    copy_from_pageable_memory,
]


def write_and_read(runtime, order):
    x, first, second = ones(COUNT), module.Stream(), module.Stream()
    with first:
        x.add_(1)
    order(runtime, handle(first), handle(second))
    with second:
        y = x * 2
    return y


@pytest.mark.parametrize("order", ORDERING, ids=lambda order: order.__name__)
def test_ordered_operators_have_no_finding(runtime, order):
    y = write_and_read(runtime, order)
    assert found() == []
    module.synchronize()
    assert y.eq(4).all()


@pytest.mark.parametrize("order", NOT_ORDERING, ids=lambda order: order.__name__)
def test_operators_without_order_are_found(runtime, order):
    write_and_read(runtime, order)
    assert found() == ["race"]


def test_a_query_that_found_work_orders_nothing(runtime, close_gate):
    x, first, second = ones(COUNT), module.Stream(), module.Stream()
    event = runtime.event()
    gate = close_gate(first)
    with first:
        x.add_(1)
    runtime.EventRecord(event, handle(first))
    assert not runtime.is_ready("EventQuery", event)
    assert not runtime.is_ready("StreamQuery", handle(first))
    with second:
        x * 2
    gate.open()
    assert found() == ["race"]


def test_an_event_that_was_recorded_too_early(runtime):
    x, first, second = ones(COUNT), module.Stream(), module.Stream()
    event = runtime.event()
    runtime.EventRecord(event, handle(first))
    runtime.StreamWaitEvent(handle(second), event, 0)
    with first:
        x.add_(1)
    runtime.EventRecord(event, handle(first))
    with second:
        x * 2
    assert found() == ["unordered event"]


def test_a_destroyed_event_is_forgotten(runtime):
    """A new event at the same address was not recorded."""
    x, first, second = ones(COUNT), module.Stream(), module.Stream()
    with first:
        x.add_(1)
    for _ in range(100):
        event = runtime.event()
        runtime.EventRecord(event, handle(first))
        runtime.EventDestroy(event)
        event = runtime.event()
        runtime.StreamWaitEvent(handle(second), event, 0)
        runtime.EventDestroy(event)
    with second:
        x * 2
    assert found() == ["race"]


@pytest.mark.parametrize("flags", [0, NON_BLOCKING], ids=["blocking", "non-blocking"])
def test_blocking_streams_wait_for_the_default_stream(runtime, flags):
    """Whether or not the streams have work."""
    stream = runtime.make("StreamCreateWithFlags", flags)
    memory = runtime.make("Malloc", size(BYTES))
    for first, second in ((stream, None), (None, stream)):
        runtime.DeviceSynchronize()
        runtime.MemsetAsync(memory, 1, size(BYTES), first)
        runtime.MemsetAsync(memory, 2, size(BYTES), second)
    runtime.DeviceSynchronize()
    runtime.StreamDestroy(stream)
    assert [each["count"] for each in C.sanitizer_findings()] == ([] if flags == 0 else [2])


# ---- accesses ------------------------------------------------------------------------------------


def test_a_copy_that_writes_what_an_operator_reads(runtime):
    x, source, side = ones(COUNT), ones(COUNT), module.Stream()
    to, bytes_from, stream = address(x), address(source), handle(side)
    runtime.library.cudaMemcpyAsync(to, bytes_from, size(BYTES), DEVICE_TO_DEVICE, stream)
    x * 2
    source * 2
    assert found() == ["race"]
    text = text_of(from_dict(C.sanitizer_findings()[0]))
    assert "in test_a_copy_that_writes_what_an_operator_reads: cudaMemcpyAsync writes `dst`" in text
    assert "runtime.library.cudaMemcpyAsync(to, bytes_from, size(BYTES)" in text
    assert f"float32 [{COUNT}] on {DEVICE}:0, allocated at " in text


def test_a_copy_that_reads_what_an_operator_writes(runtime):
    x, target, side = ones(COUNT), ones(COUNT), module.Stream()
    x.add_(1)
    runtime.MemcpyAsync(address(target), address(x), size(BYTES), DEFAULT, handle(side))
    assert found() == ["race"]
    assert "cudaMemcpyAsync reads `src`" in text_of(from_dict(C.sanitizer_findings()[0]))


def test_a_fill_that_an_operator_reads(runtime):
    x, side = ones(COUNT), module.Stream()
    runtime.MemsetAsync(address(x), 0, size(BYTES), handle(side))
    x * 2
    assert found() == ["race"]
    assert "cudaMemsetAsync writes `devPtr`" in text_of(from_dict(C.sanitizer_findings()[0]))


@pytest.mark.parametrize("is_pinned", [False, True])
def test_copies_of_two_streams(runtime, is_pinned):
    first, second = handle(module.Stream()), handle(module.Stream())
    x, host = ones(COUNT), torch.zeros(COUNT)
    host = host.pin_memory() if is_pinned else host
    runtime.MemcpyAsync(address(x), address(host), size(BYTES), HOST_TO_DEVICE, first)
    runtime.MemcpyAsync(address(host), address(x), size(BYTES), DEVICE_TO_HOST, second)
    (finding,) = C.sanitizer_findings()
    assert finding["kind"] == "race"
    assert finding["count"] == (2 if is_pinned else 1)  # in the tensor, and in pinned memory


def test_the_host_waits_for_a_copy(runtime):
    x, host, side = ones(COUNT), torch.zeros(COUNT), module.Stream()
    runtime.Memcpy(address(x), address(host), size(BYTES), HOST_TO_DEVICE)
    with side:
        x.add_(1)
    runtime.StreamSynchronize(handle(side))
    runtime.Memset(address(x), 0, size(BYTES))
    with side:
        x.add_(1)
        assert found() == []
        runtime.Memcpy(address(host), address(x), size(4), DEVICE_TO_HOST)
    assert found() == ["race"]  # it uses the default stream


def test_rows_are_known_to_the_byte(runtime):
    x, side = ones(128, 128), module.Stream()
    half, pitch = size(256), size(512)
    runtime.Memset2DAsync(address(x), pitch, 0, half, size(128), handle(side))
    x[:, 64:].add_(1)
    assert found() == []
    x[:, :65] * 2
    assert found() == ["race"]


def test_copies_and_fills_initialize(runtime):
    x, y, z = (torch.empty(COUNT, device=DEVICE) for _ in range(3))
    host = torch.ones(COUNT)
    runtime.MemcpyAsync(address(x), address(host), size(BYTES), HOST_TO_DEVICE, None)
    runtime.MemsetAsync(address(y), 0, size(BYTES), None)
    runtime.MemcpyAsync(address(z), address(x), size(BYTES), DEVICE_TO_DEVICE, None)
    assert torch.equal(x + y, z)
    assert found() == []


def test_a_copy_of_unwritten_bytes_is_found_when_they_are_used(runtime):
    x, y = torch.empty(COUNT, device=DEVICE), torch.empty(COUNT, device=DEVICE)
    runtime.MemcpyAsync(address(y), address(x), size(BYTES), DEVICE_TO_DEVICE, None)
    assert found() == []
    y * 2
    assert found() == ["uninitialised read"]


@pytest.mark.parametrize("allocate, free", [("Malloc", "Free"), ("MallocAsync", "FreeAsync")])
def test_memory_of_the_runtime_is_watched(runtime, allocate, free):
    stream = () if allocate == "Malloc" else (None,)
    memory = runtime.make(allocate, size(BYTES), *stream)
    runtime.MemsetAsync(memory, 0, size(BYTES), handle(module.Stream()))
    getattr(runtime, free)(memory, *stream)
    memory = runtime.make(allocate, size(BYTES), *stream)  # perhaps the same memory
    runtime.MemsetAsync(memory, 0, size(BYTES), handle(module.Stream()))
    assert found() == []
    runtime.MemsetAsync(memory, 0, size(BYTES), None)
    assert found() == ["race"]
    runtime.DeviceSynchronize()
    getattr(runtime, free)(memory, *stream)


# ---- host memory ---------------------------------------------------------------------------------


def test_the_host_writes_what_a_copy_reads(runtime):
    x, host = ones(COUNT), torch.ones(COUNT).pin_memory()
    runtime.MemcpyAsync(address(x), address(host), size(BYTES), HOST_TO_DEVICE, None)
    host.numpy()[5] = 7
    assert found() == ["host access"]


def test_pinned_memory_of_the_runtime_is_watched(runtime):
    memory = runtime.make("HostAlloc", size(BYTES), 0)
    array = np.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(memory.value))
    array[:] = 1
    x = ones(COUNT)
    runtime.MemcpyAsync(address(x), memory, size(BYTES), HOST_TO_DEVICE, None)
    runtime.StreamSynchronize(None)
    array[5] = 2
    assert found() == []
    runtime.MemcpyAsync(memory, address(x), size(BYTES), DEVICE_TO_HOST, None)
    assert array[5] in (1, 2)
    assert found() == ["host access"]
    runtime.FreeHost(memory)


def test_copies_access_pages_that_are_protected_for_them(runtime, close_gate):
    x, host = ones(COUNT), torch.zeros(COUNT).pin_memory()
    for queue in (False, True):
        gate = close_gate() if queue else None
        runtime.MemcpyAsync(address(host), address(x), size(BYTES), DEVICE_TO_HOST, None)
        runtime.MemcpyAsync(address(x), address(host), size(BYTES), HOST_TO_DEVICE, None)
        runtime.MemsetAsync(address(host), 0, size(BYTES), None)
        if gate is not None:
            gate.open()
        runtime.DeviceSynchronize()
        assert found() == []
        assert host.eq(0).all() and x.cpu().eq(1).all()


def test_a_host_function_uses_memory_in_the_order_of_its_stream(runtime, close_gate):
    x, host = ones(COUNT), torch.zeros(COUNT).pin_memory()
    seen = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def use(_):
        seen.append(host.numpy()[COUNT // 2].item())
        host.numpy()[:] = 3
        host.add_(1)

    gate = close_gate()
    runtime.MemcpyAsync(address(host), address(x), size(BYTES), DEVICE_TO_HOST, None)
    runtime.LaunchHostFunc(None, use, None)
    runtime.MemcpyAsync(address(x), address(host), size(BYTES), HOST_TO_DEVICE, None)
    gate.open()
    runtime.DeviceSynchronize()
    assert found() == []
    assert seen == [1] and x.cpu().eq(4).all()


# ---- captures ------------------------------------------------------------------------------------


def test_a_captured_copy_is_an_access_of_each_replay(runtime):
    x, source, side = ones(COUNT), ones(COUNT), module.Stream()
    target = torch.empty(COUNT, device=DEVICE)
    graph = module.CUDAGraph()
    with module.graph(graph, stream=side):
        stream = handle(side)
        runtime.MemcpyAsync(address(x), address(source), size(BYTES), DEVICE_TO_DEVICE, stream)
        runtime.MemcpyAsync(address(target), address(x), size(BYTES), DEVICE_TO_DEVICE, stream)
    x * 2
    target * 2
    assert found() == []
    module.synchronize()
    with side:
        graph.replay()
    x * 2
    assert found() == ["race"]
