"""What every test relies on: a known configuration, a first current device, and a way to run code
in a process of its own.

Variables of the person who runs the tests must not reach them, and must be gone before PyTorch is
imported, since the configuration is read once.
"""

import itertools
import os
import subprocess
import sys
import textwrap
import threading

import pytest

for name in [name for name in os.environ if name.startswith(("OPENREG_", "HWLOC_"))]:
    del os.environ[name]

# Devices are shared by the processes of a group: these tests have one of their own. Containers that
# share /dev/shm have processes of the same number.
GROUP = f"pytest-{os.getpid()}-{os.urandom(4).hex()}"
os.environ["OPENREG_GROUP"] = GROUP

import torch  # noqa: E402
import torch_openreg._C  # noqa: E402

# The second way in which everything must pass: each launch that can be queued is.
if os.environ.get("QUEUE_EVERYTHING") == "1":
    torch_openreg._C.set_queueing_threshold_ns(0)

# Workers share the cores, and a sum in more parts has other last bits: one thread for all.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def first_device_and_default_streams():
    """Every test leaves the current device and streams as it found them: the first ones."""
    yield
    for index in range(torch.openreg.device_count()):
        torch.openreg.set_stream(torch.openreg.default_stream(index))
    torch.openreg.set_device(0)


@pytest.fixture
def everything_queued():
    """Each launch that can be queued is, however short: every one of which a like one ran before.

    Whatever a test queues has ended before the next test begins.
    """
    threshold = torch_openreg._C.queueing_threshold_ns()
    torch_openreg._C.set_queueing_threshold_ns(0)
    yield
    torch_openreg._C.set_queueing_threshold_ns(threshold)
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)


# A wait that should not be would be for ever: after so long the gate opens, and the test fails.
# What should be takes milliseconds, and seconds where many others want the cores.
PATIENCE_SECONDS = 120


@pytest.fixture
def close_gate(everything_queued):
    """Keep a stream busy, the current one if none is given, until ``open()`` of what is returned.

    What is launched on the stream meanwhile can be queued, and cannot have run.
    """
    gates, timers, opened_late = [], [], []

    def close(stream=None):
        stream = stream or torch.openreg.current_stream()
        gate = torch_openreg._C._Gate(stream.device_index, stream.stream_id)
        gates.append(gate)
        timers.append(
            threading.Timer(PATIENCE_SECONDS, lambda: (opened_late.append(gate), gate.open()))
        )
        timers[-1].start()
        return gate

    yield close
    for gate, timer in zip(gates, timers, strict=True):
        timer.cancel()
        timer.join()
        gate.open()
    assert not opened_late, "something waited for a gate that it should not have waited for"


@pytest.fixture(scope="session")
def own_group():
    """Make the environment of a process that shares its devices with no other, at each call."""
    numbers = itertools.count()
    return lambda: os.environ | {"OPENREG_GROUP": f"{GROUP}-{next(numbers)}"}


@pytest.fixture
def python(own_group):
    """Run code in a process of its own, with environment variables as keyword arguments.

    The processes of one test share their devices, and share them with no other test.
    """
    group = own_group()

    def run(code, *, expect=0, **environment):
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=group | environment,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return run
