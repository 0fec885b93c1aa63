"""PyTorch's own torch.cuda._sanitizer with the devices' streams, events and memory."""

import pytest

RACE = """
import torch
values = torch.rand(4, 2, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    torch.mul(values, 5, out=values)
"""

ORDERED = {
    "stream waits for stream": """
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    torch.mul(values, 5, out=values)
torch.cuda.current_stream().wait_stream(side)
values.add_(1)
""",
    "event": """
torch.cuda.current_stream().record_event(event)
side.wait_event(event)
with torch.cuda.stream(side):
    torch.mul(values, 5, out=values)
    event.record()
event.synchronize()
values.add_(1)
""",
    "host waits for the stream": """
torch.cuda.current_stream().synchronize()
with torch.cuda.stream(side):
    torch.mul(values, 5, out=values)
side.synchronize()
values.add_(1)
""",
    "host waits for the device": """
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.mul(values, 5, out=values)
torch.cuda.synchronize()
values.add_(1)
""",
    "number goes to the host": """
values.sum().item()
with torch.cuda.stream(side):
    torch.mul(values, 5, out=values)
    values.sum().cpu()
values.add_(1)
""",
    "mask is counted by the host": """
mask = torch.ones(4, dtype=torch.bool, device="cuda")
torch.ones(4, device="cuda")[mask]
with torch.cuda.stream(side):
    torch.mul(values, 5, out=values)
""",
    "memory is another tensor's": """
del values
with torch.cuda.stream(side):
    values = torch.ones(4, 2, device="cuda")
""",
}

BEGIN = """
import torch
values = torch.rand(4, 2, device="cuda")
side, event = torch.cuda.Stream(), torch.cuda.Event()
"""


@pytest.fixture
def watched(python):
    """Run a program with CSan only, even if openreg's sanitizer watches these tests."""
    variables = {"TORCH_CUDA_SANITIZER": "1", "OPENREG_SANITIZER": "0"}
    return lambda code, expect=0: python(code, expect=expect, fresh=True, **variables)


@pytest.mark.own_processes
def test_race_is_named(watched):
    result = watched(RACE, expect=1)
    assert "CSAN detected a possible data race on tensor with data pointer" in result.stderr
    assert "aten::mul.out" in result.stderr and "aten::rand" in result.stderr
    assert "CUDASanitizerErrors: detected 1 errors" in result.stderr


@pytest.mark.own_processes
@pytest.mark.parametrize("name", ORDERED)
def test_ordered_accesses_are_no_race(watched, name):
    assert watched(BEGIN + ORDERED[name]).stderr == ""


@pytest.mark.own_processes
def test_streams_of_two_devices_are_two(watched):
    result = watched(
        """
import torch
streams = [torch.cuda.Stream(device) for device in (0, 1)]
assert streams[0].cuda_stream != streams[1].cuda_stream
values = torch.rand(4, 2, device="cuda")
event = torch.cuda.Event()
with torch.cuda.stream(streams[1]):
    event.record()
streams[0].wait_event(event)  # of another device, so it orders nothing
with torch.cuda.stream(streams[0]):
    values.mul_(5)
""",
        expect=1,
    )
    assert "detected 1 errors" in result.stderr


@pytest.mark.own_processes
def test_exception_on_its_way_is_kept_while_memory_is_freed(watched):
    watched("""
import torch
try:
    torch.ones(1, device="cuda").numpy()
except TypeError as error:
    assert "can't convert cuda:0 device type tensor" in str(error)
else:
    raise AssertionError
""")
