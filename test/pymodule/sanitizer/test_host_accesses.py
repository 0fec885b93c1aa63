"""Accesses of the host to pinned memory without an operator, which page protection detects."""

import ctypes
import os
import threading

import numpy as np
import pytest
import torch
import torch_openreg._C as C
from torch_openreg.sanitizer.finding import from_dict
from torch_openreg.sanitizer.text import block as text_of

from device import DEVICE, module

COUNT = 1 << 14  # floats, in 16 pages


@pytest.fixture
def reported():
    """Run the sanitizer during a test, and return the list of reported findings."""
    findings = []
    C.sanitizer_start(findings.append, ["host access", "race", "uninitialised read"], False)
    yield findings
    module.synchronize()
    C.sanitizer_stop()


def found():
    return [(each["kind"], each["second"]["mode"]) for each in C.sanitizer_findings()]


def test_numpy_writes_what_a_queued_copy_reads(reported, close_gate):
    source = torch.ones(COUNT).pin_memory()
    gate = close_gate()
    x = source.to(DEVICE, non_blocking=True)
    source.numpy()[:] = 7
    assert found() == [("host access", "writes")]
    gate.open()
    module.synchronize()
    assert x.cpu().eq(7).all()  # the program continued, and its write is in memory


def test_numpy_reads_what_a_queued_copy_writes(reported, close_gate):
    x = torch.full((COUNT,), 3.0, device=DEVICE)
    result = torch.zeros(COUNT).pin_memory()
    gate = close_gate()
    result.copy_(x, non_blocking=True)
    assert result.numpy()[COUNT // 2] == 0
    assert found() == [("host access", "reads")]
    gate.open()
    module.synchronize()
    assert result.eq(3).all()


def peek(tensor):
    """Return the first number of a tensor on the host, read as debuggers do, without a fault."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(tensor.data_ptr())
        return np.frombuffer(memory.read(4), dtype=np.float32)[0]


def test_pages_stay_protected_until_the_host_waits(reported):
    """Whether the work is already done does not matter."""
    x = torch.full((COUNT,), 3.0, device=DEVICE)
    result = torch.zeros(COUNT).pin_memory()
    result.copy_(x, non_blocking=True)
    while peek(result) != 3:
        pass
    assert result.numpy()[0] == 3
    assert found() == [("host access", "reads")]


def test_found_once_and_the_program_continues(reported):
    source = torch.ones(COUNT).pin_memory()
    array = source.numpy()
    x = source.to(DEVICE, non_blocking=True)
    for i in range(COUNT):
        array[i] = i
    assert found() == [("host access", "writes")]
    assert len(reported) == 1
    assert torch.equal(source, torch.arange(float(COUNT)))
    copied = x.cpu()  # each byte from before or after: it is a race
    assert torch.logical_or(copied.eq(1), copied.eq(source)).all()


def test_finding_says_where_and_what(reported):
    source = torch.ones(COUNT).pin_memory()
    source.to(DEVICE, non_blocking=True)
    np.asarray(source)[5] = 1
    text = text_of(from_dict(C.sanitizer_findings()[0]))
    assert "in pinned memory, allocated at " in text
    assert "the program itself writes" in text and "by the host" in text
    assert "np.asarray(source)[5] = 1" in text


def test_accesses_of_threads_and_c_are_found(reported):
    source = torch.ones(COUNT).pin_memory()
    source.to(DEVICE, non_blocking=True)
    target = source.data_ptr() + 8
    thread = threading.Thread(target=ctypes.memset, args=(target, 0, 4096))
    thread.start()
    thread.join()
    assert found() == [("host access", "writes")]
    assert source[2].item() == 0 and source[0].item() == 1


@pytest.mark.parametrize(
    "wait",
    [
        lambda event: module.synchronize(),
        lambda event: module.current_stream().synchronize(),
        lambda event: event.synchronize(),
        lambda event: torch.ones(1, device=DEVICE).item(),
    ],
)
def test_nothing_is_found_after_a_wait(reported, wait):
    source = torch.ones(COUNT).pin_memory()
    result = torch.zeros(COUNT).pin_memory()
    x = source.to(DEVICE, non_blocking=True)
    result.copy_(x, non_blocking=True)
    wait(module.current_stream().record_event())
    source.numpy()[:] = 2
    assert result.numpy().sum() == COUNT
    assert found() == []


def test_work_of_streams_accesses_protected_pages(reported, close_gate):
    """Copies to and from a buffer, also with a conversion of the dtype."""
    buffer = torch.zeros(COUNT).pin_memory()
    x = torch.full((COUNT,), 2.0, device=DEVICE)
    wide = torch.full((COUNT,), 5.0, device=DEVICE, dtype=torch.float64)
    wide.to(torch.float32)
    for queue in (False, True):
        gate = close_gate() if queue else None
        buffer.copy_(x, non_blocking=True)
        y = buffer.to(DEVICE, non_blocking=True)
        buffer.copy_(wide, non_blocking=True)
        z = buffer.to(DEVICE, torch.float64, non_blocking=True)
        buffer.copy_(y + 1, non_blocking=True)
        if gate is not None:
            gate.open()
        module.synchronize()
        assert found() == []
        assert y.cpu().eq(2).all() and z.cpu().eq(5).all() and buffer.eq(3).all()


def test_the_host_may_use_other_parts_of_a_buffer(reported):
    buffer = torch.zeros(2, COUNT + 3).pin_memory()  # the halves share a page
    array = buffer.numpy()
    x = buffer[0].to(DEVICE, non_blocking=True)
    array[1] = 1
    assert found() == []
    array[0, COUNT // 2] = 1
    assert found() == [("host access", "writes")]
    del x


def test_memory_is_accessible_after_free_and_stop():
    C.sanitizer_start(lambda finding: None, ["host access"], False)
    kept = torch.ones(COUNT).pin_memory()
    freed = torch.ones(COUNT).pin_memory()
    kept.to(DEVICE, non_blocking=True), freed.to(DEVICE, non_blocking=True)
    del freed
    again = torch.empty(COUNT).pin_memory()
    again.numpy()[:] = 1
    assert C.sanitizer_findings() == []
    C.sanitizer_stop()
    kept.numpy()[:] = 2
    assert kept.sum() == 2 * COUNT


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_can_access_the_memory(reported):
    buffer = torch.ones(COUNT).pin_memory()
    buffer.to(DEVICE, non_blocking=True)
    child = os.fork()
    if child == 0:
        buffer.numpy()[:] = 3
        os._exit(0 if buffer.numpy().sum() == 3 * COUNT else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert buffer.numpy()[0] == 1
    assert found() == []
