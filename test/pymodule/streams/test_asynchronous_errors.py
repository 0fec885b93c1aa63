"""Failures of queued work, threads that run while others wait, and exit with pending work."""

import pytest
import torch

from device import DEVICE, module

BEFORE = """
import faulthandler, os, signal, sys, threading, time
from pathlib import Path

faulthandler.dump_traceback_later(1000, exit=True)  # in case of an endless wait

import torch, torch_openreg._C as C
from device import DEVICE, module

C.set_queues_everything(True)
main_thread = threading.main_thread()

def close_gate():
    stream = module.current_stream()
    return C._Gate(stream.device_index, stream.stream_id)

def is_asleep():
    state = Path(f"/proc/self/task/{main_thread.native_id}/stat").read_text()
    return state.rpartition(")")[2].split()[0] == "S"

def when_main_thread_waits(act):
    "Needs the GIL: what holds it while it waits, waits for ever."
    called = threading.Event()
    def run():
        called.wait()
        while not is_asleep():
            time.sleep(0.001)  # otherwise this thread releases the GIL too briefly
        act()
    thread = threading.Thread(target=run)
    thread.start()
    called.set()
    return thread

tensor = torch.zeros(8, device=DEVICE)
for _ in range(2):
    tensor.add_(0)
module.synchronize()
"""


SYNCHRONIZE = {
    "device": lambda: module.synchronize(),
    "accelerator": lambda: torch.accelerator.synchronize(),
    "stream": lambda: module.current_stream().synchronize(),
    "event": lambda: module.current_stream().record_event().synchronize(),
    "item": lambda: torch.ones(1, device=DEVICE).item(),
    "cpu": lambda: torch.ones(1, device=DEVICE).cpu(),
}


@pytest.mark.parametrize("how", SYNCHRONIZE)
def test_failure_of_queued_work_is_raised_by_the_next_synchronization(close_gate, how):
    rows, indices = torch.ones(4, 3, device=DEVICE), torch.tensor([0, 3], device=DEVICE)
    torch.index_select(rows, 0, indices)
    indices += 1
    module.synchronize()
    gate = close_gate()
    result = torch.index_select(rows, 0, indices)
    assert result.shape == (2, 3)
    gate.open()
    with pytest.raises(torch.AcceleratorError, match="'aten::index_select' failed .*index out of"):
        SYNCHRONIZE[how]()
    module.synchronize()  # it is raised only once
    assert torch.index_select(rows, 0, indices - 1).sum().item() == 6


def test_work_behind_a_failure_still_runs(close_gate):
    rows, indices = torch.ones(4, 3, device=DEVICE), torch.tensor([0, 3], device=DEVICE)
    torch.index_select(rows, 0, indices)
    rows.add_(0.0)
    rows.add_(1.0)
    indices += 1
    module.synchronize()
    gate = close_gate()
    torch.index_select(rows, 0, indices)
    rows.add_(1.0)
    gate.open()
    with pytest.raises(torch.AcceleratorError):
        module.synchronize()
    assert rows.unique().tolist() == [3]


def test_first_of_several_failures_is_raised(close_gate):
    rows, indices = torch.ones(4, 3, device=DEVICE), torch.tensor([0, 3], device=DEVICE)
    column = indices.view(2, 1)
    torch.index_select(rows, 0, indices)
    torch.gather(rows, 0, column)
    indices += 1
    module.synchronize()
    gate = close_gate()
    torch.gather(rows, 0, column)
    torch.index_select(rows, 0, indices)
    gate.open()
    with pytest.raises(torch.AcceleratorError, match="aten::gather"):
        module.synchronize()
    module.synchronize()


def test_failure_is_raised_on_its_own_device_only(close_gate):
    rows, indices = (
        torch.ones(4, 3, device=f"{DEVICE}:1"),
        torch.tensor([0, 3], device=f"{DEVICE}:1"),
    )
    torch.index_select(rows, 0, indices)
    indices += 1
    module.synchronize(1)
    gate = close_gate(module.default_stream(1))
    torch.index_select(rows, 0, indices)
    gate.open()
    module.synchronize(0)
    with pytest.raises(torch.AcceleratorError, match="aten::index_select"):
        module.synchronize(1)


def test_blocking_launch_raises_at_the_call_what_the_cpu_does(python):
    code = """
    rows, indices = torch.ones(4, 3), torch.tensor([0, 3])
    for device in ("cpu", DEVICE):
        rows, indices = rows.to(device), indices.to(device)
        torch.index_select(rows, 0, indices)
        try:
            torch.index_select(rows, 0, indices + 1)
        except Exception as error:
            print(type(error).__name__, error)
        module.synchronize()
    """
    body = BEFORE + "\n".join(line[4:] for line in code.splitlines())
    on_cpu, on_device = python(body, OPENREG_LAUNCH_BLOCKING="1").stdout.splitlines()
    assert "index out of range" in on_cpu
    assert on_device == on_cpu


WAITS = {
    "synchronize": "module.synchronize()",
    "accelerator.synchronize": "torch.accelerator.synchronize()",
    "stream.synchronize": "module.current_stream().synchronize()",
    "event.synchronize": "module.current_stream().record_event().synchronize()",
    "item": "tensor[0].item()",
    "nonzero": "tensor.nonzero()",
    "cpu": "tensor.cpu()",
    "copy from pageable memory": "tensor.copy_(torch.zeros(8))",
    "first run": "torch.cumsum(tensor, 0)",
    "empty_cache": "module.empty_cache()",
}

# These run repeatedly; the last repetition is one too many.
FULL_QUEUE_WAITS = {
    "launch": "tensor.add_(0)",
    "copy": "big.copy_(pinned, non_blocking=True)",
    "timed event": "timed.record()",
    "wait_event": "module.current_stream().wait_event(pending)",
}


def test_every_wait_lets_other_threads_run(python):
    """A Python thread opens the gate that the main thread waits for."""
    code = BEFORE + "\n".join(
        f"""
gate = close_gate()
tensor.add_(0)
thread = when_main_thread_waits(gate.open)
{wait}
thread.join()
module.synchronize()
print({name!r})
"""
        for name, wait in WAITS.items()
    )
    assert python(code).stdout.splitlines() == list(WAITS)


def test_copy_above_the_staging_limit_waits(python):
    """The copy has finished when the call returns."""
    code = """
        host = torch.ones(1, dtype=torch.float64).expand(40 << 20)
        big = torch.zeros(40 << 20, dtype=torch.int8, device=DEVICE)
        gate = close_gate()
        tensor.add_(0)
        thread = when_main_thread_waits(gate.open)
        big.copy_(host, non_blocking=True)
        print(module.current_stream().query())
        thread.join()
        print(big.all().item())
    """
    body = BEFORE + "\n".join(line[8:] for line in code.splitlines())
    assert python(body).stdout.split() == ["True", "True"]


def test_every_wait_for_space_in_a_queue_lets_other_threads_run(python):
    code = (
        BEFORE
        + """
pinned = torch.zeros(5000).pin_memory()
big = torch.zeros(5000, device=DEVICE)
timed = module.Event(enable_timing=True)
other = module.Stream()
"""
    )
    code += "\n".join(
        f"""
with other:
    other_gate = close_gate()
pending = other.record_event()
gate = close_gate()
for _ in range(1020):
    tensor.add_(0)
thread = when_main_thread_waits(lambda: (gate.open(), other_gate.open()))
for _ in range(8):
    {wait}
thread.join()
module.synchronize()
print({name!r})
"""
        for name, wait in FULL_QUEUE_WAITS.items()
    )
    assert python(code).stdout.splitlines() == list(FULL_QUEUE_WAITS)


@pytest.mark.parametrize(
    "wait", ["synchronize", "stream.synchronize", "event.synchronize", "item", "first run"]
)
def test_interrupt_ends_a_wait(python, wait):
    code = f"""
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
gate = close_gate()
tensor.add_(0)
thread = when_main_thread_waits(lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    {WAITS[wait]}
except KeyboardInterrupt:
    print("interrupted", module.current_stream().query())
thread.join()
gate.open()
module.synchronize()
print(tensor.sum().item())
"""
    assert python(BEFORE + code).stdout == "interrupted False\n0.0\n"


@pytest.mark.parametrize("streams", [1, 3])
def test_program_may_end_with_work_pending(python, streams):
    code = f"""
import atexit

work = torch.ones(300, 300, device=DEVICE)
for _ in range(2):
    work @ work
module.synchronize()
gates, leaving = [], threading.Event()
for _ in range({streams}):
    stream = module.Stream()
    with stream:
        gates.append(close_gate())
        results = [work @ work for _ in range(100)]

def open_late():
    leaving.wait()
    for gate in gates:
        gate.open()

atexit.register(leaving.set)  # runs before the exit handlers of the package
threading.Thread(target=open_late, daemon=True).start()
print(stream.query())
"""
    assert python(BEFORE + code).stdout == "False\n"


def test_program_may_end_with_a_failure_that_was_not_raised(python):
    code = """
rows, indices = torch.ones(4, 3, device=DEVICE), torch.tensor([0, 3], device=DEVICE)
torch.index_select(rows, 0, indices)
indices += 1
module.synchronize()
gate = close_gate()
torch.index_select(rows, 0, indices)
gate.open()
while not module.current_stream().query():
    pass
print("end")
"""
    assert python(BEFORE + code).stdout == "end\n"
