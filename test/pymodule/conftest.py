"""What every test relies on: a known configuration, a first current device, and a way to run code
in a process of its own.

Variables of the person who runs the tests must not reach them, and must be gone before PyTorch is
imported, since the configuration is read once. But OPENREG_DEVICE_TYPE may be cuda: then the tests,
which say where their devices are by `device.DEVICE`, run in CUDA mode. And `openreg sanitize` may
run them: then it tells what it finds in them, and in the processes that they start.
"""

import gc
import itertools
import os
import subprocess
import sys
import textwrap
import threading

import forks as forks_of_tests
import pytest
from forks import READ_BY_IMPORTING

OURS = (
    "OPENREG_",
    "HWLOC_",
    "PYTORCH_",
    "CUBLAS",
    "CUDA_VISIBLE_DEVICES",
    "TORCH_CUBLASLT_",
    "TORCH_BLAS_",
)
# Python read the first when it started; the others are there where the tests are watched.
KEPT = ("OPENREG_DEVICE_TYPE", "OPENREG_SANITIZER")
for name in [name for name in os.environ if name.startswith(OURS) and not name.startswith(KEPT)]:
    del os.environ[name]
HERE = os.path.dirname(__file__)
# What a terminal's size would be taken from: some of those who start tests set them.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# Of groups that fail, as many do here, nothing shall be written where PyTorch would put it.
os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"

# Devices are shared by the processes of a group: these tests have one of their own. Containers that
# share /dev/shm have processes of the same number.
GROUP = f"pytest-{os.getpid()}-{os.urandom(4).hex()}"
os.environ["OPENREG_GROUP"] = GROUP

import torch  # noqa: E402
import torch_openreg._C  # noqa: E402

from device import module as device_module  # noqa: E402

# The second way in which everything must pass: each launch that can be queued is.
QUEUE_EVERYTHING = os.environ.get("QUEUE_EVERYTHING") == "1"
if QUEUE_EVERYTHING:
    torch_openreg._C.set_queues_everything(True)

# Workers share the cores, and a sum in more parts has other last bits: one thread for all.
torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what computes in processes of its own; leave out of the second run what is the same."""
    for item in items:
        if "own_group" in item.fixturenames:
            item.add_marker("own_processes")
    if QUEUE_EVERYTHING:
        same = [item for item in items if is_the_same_when_queued(item)]
        config.hook.pytest_deselected(items=same)
        items[:] = [item for item in items if item not in set(same)]


def is_the_same_when_queued(item):
    """Whether a test queues everything anyway, or nothing that this process could have queued."""
    if item.get_closest_marker("ranks_queue"):
        return False
    return "everything_queued" in item.fixturenames or item.get_closest_marker("own_processes")


def pytest_collection_finish():
    """What was imported lives as long as the tests: no collection of theirs need look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def first_device_and_default_streams():
    """Every test begins without garbage of others, whose memory would be freed in the middle of it.

    And it leaves the current device and streams as it found them: the first ones.
    """
    gc.collect()
    yield
    for index in range(device_module.device_count()):
        device_module.set_stream(device_module.default_stream(index))
    device_module.set_device(0)


@pytest.fixture
def everything_queued():
    """Each launch that can be queued is, however short: every one of which a like one ran before.

    Whatever a test queues has ended before the next test begins.
    """
    before = torch_openreg._C.queues_everything()
    torch_openreg._C.set_queues_everything(True)
    yield
    torch_openreg._C.set_queues_everything(before)
    for index in range(device_module.device_count()):
        device_module.synchronize(index)


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
        stream = stream or device_module.current_stream()
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
    """Make the environment of a process that shares its devices with no other, at each call.

    What the process runs may import `device`, as tests do.
    """
    numbers = itertools.count()
    path = os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH"))))
    return lambda: os.environ | {"OPENREG_GROUP": f"{GROUP}-{next(numbers)}", "PYTHONPATH": path}


@pytest.fixture(scope="session")
def forks():
    """Return what starts programs as forks of a process that has imported PyTorch."""
    started = forks_of_tests.Forks()
    yield started
    started.close()


@pytest.fixture
def python(own_group, forks):
    """Run code in a process of its own, with environment variables as keyword arguments.

    The processes of one test share their devices, and share them with no other test. They are
    forks of one that has imported PyTorch, or ``fresh``: that is for programs about importing, and
    follows from a variable that importing reads.
    """
    group = own_group()

    def run(code, *, expect=0, fresh=False, **environment):
        code = textwrap.dedent(code)
        if fresh or any(name.startswith(READ_BY_IMPORTING) for name in environment):
            result = subprocess.run(
                [sys.executable, "-c", code],
                env=group | environment,
                capture_output=True,
                text=True,
            )
        else:
            result = forks.run(code, group | environment)
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return run
