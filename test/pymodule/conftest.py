"""What every test relies on: a known configuration, a current device, and a way to run code in a
process of its own.

Configuration variables of the person who runs the tests must not affect them. They are removed
before PyTorch is imported, because openreg reads its configuration once. There are two exceptions:
with OPENREG_DEVICE_TYPE=cuda the tests run in CUDA mode (they name devices by `device.DEVICE`), and
under `openreg sanitize` the sanitizer watches them and the processes that they start.
"""

import contextlib
import gc
import itertools
import os
import pathlib
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
# Python has read the first one at its start. `openreg sanitize` sets the others.
KEPT = ("OPENREG_DEVICE_TYPE", "OPENREG_SANITIZER")
for name in [name for name in os.environ if name.startswith(OURS) and not name.startswith(KEPT)]:
    del os.environ[name]
HERE = os.path.dirname(__file__)
# Python would take the size of the terminal from them, and some programs that run tests set them.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# Many process groups fail in these tests. PyTorch must not write a dump of each to its default
# folder.
os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"

# Processes with the same OPENREG_GROUP share devices, so each test process has a group of its own.
# The random digits keep apart containers that share /dev/shm and have equal process numbers.
GROUP = f"pytest-{os.getpid()}-{os.urandom(4).hex()}"
os.environ["OPENREG_GROUP"] = GROUP

import torch  # noqa: E402
import torch_openreg._C  # noqa: E402

from device import DEVICE  # noqa: E402
from device import module as device_module  # noqa: E402

# The tests must also pass when every launch that can be queued is queued.
QUEUE_EVERYTHING = os.environ.get("QUEUE_EVERYTHING") == "1"
if QUEUE_EVERYTHING:
    torch_openreg._C.set_queues_everything(True)

# One thread, because workers share the cores, and because a sum in several parts differs in its
# last bits.
torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Add the marks that follow from fixtures and modes; deselect what queueing does not change."""
    for item in items:
        if "own_group" in item.fixturenames:
            item.add_marker("own_processes")
        if DEVICE == "cuda" and (mark := item.get_closest_marker("openreg_only")):
            item.add_marker(pytest.mark.skip(reason=f"not in CUDA mode: {mark.args[0]}"))
    if QUEUE_EVERYTHING:
        same = [item for item in items if is_the_same_when_queued(item)]
        config.hook.pytest_deselected(items=same)
        items[:] = [item for item in items if item not in set(same)]


def is_the_same_when_queued(item):
    """Return whether a test queues everything anyway, or launches nothing in this process."""
    if item.get_closest_marker("ranks_queue"):
        return False
    marks = ("own_processes", "same_when_queued")
    return "everything_queued" in item.fixturenames or any(map(item.get_closest_marker, marks))


def pytest_collection_finish():
    """Exclude all imported objects from garbage collection: they live as long as the tests."""
    gc.collect()
    gc.freeze()


def has_autograd_threads():
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # the thread has ended
            if (
                pathlib.Path("/proc/self/task", thread, "comm")
                .read_text()
                .startswith("pt_autograd")
            ):
                return True
    return False


def finish_backwards():
    """Wait until autograd's threads have dropped the last node that each ran.

    A thread holds the node, and what the node saved, for a moment after `backward` has returned.
    """
    if has_autograd_threads():
        with torch.enable_grad():
            for index in range(device_module.device_count()):
                leaf = torch.empty(0, device=f"{DEVICE}:{index}", requires_grad=True)
                torch.autograd.grad(leaf * 1, leaf, torch.empty_like(leaf))


@pytest.fixture(autouse=True)
def first_device_and_default_streams():
    """Begin each test without garbage of earlier ones, which would be freed in the middle of it.

    Afterwards, reset the current device and streams.
    """
    finish_backwards()
    gc.collect()
    yield
    for index in range(device_module.device_count()):
        device_module.set_stream(device_module.default_stream(index))
    device_module.set_device(0)


@pytest.fixture
def everything_queued():
    """Queue each launch that can be queued, however short: a similar one must have run before.

    All queued work of a test ends before the next test begins.
    """
    before = torch_openreg._C.queues_everything()
    torch_openreg._C.set_queues_everything(True)
    yield
    torch_openreg._C.set_queues_everything(before)
    for index in range(device_module.device_count()):
        device_module.synchronize(index)


@pytest.fixture
def nothing_queued():
    """Run short launches at once, also if the tests queue everything."""
    before = torch_openreg._C.queues_everything()
    torch_openreg._C.set_queues_everything(False)
    yield
    torch_openreg._C.set_queues_everything(before)


# A gate opens after this time and the test fails: something waited for the gate that should not
# have. Correct waits take milliseconds, or seconds on a loaded machine.
PATIENCE_SECONDS = 120


@pytest.fixture
def close_gate(everything_queued):
    """Return a function that keeps a stream busy until ``open()`` of its result is called.

    The default is the current stream. Work launched on the stream meanwhile can be queued, and
    does not run.
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
    """Return a function that makes the environment of a process with devices of its own.

    The code in the process may import `device`, as tests do.
    """
    numbers = itertools.count()
    path = os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH"))))
    return lambda: os.environ | {"OPENREG_GROUP": f"{GROUP}-{next(numbers)}", "PYTHONPATH": path}


@pytest.fixture(scope="session")
def forks():
    """Return an object that starts programs as forks of a process that has imported PyTorch."""
    started = forks_of_tests.Forks()
    yield started
    started.close()


@pytest.fixture
def python(own_group, forks):
    """Run code in a process of its own, with environment variables as keyword arguments.

    The processes of one test share their devices with each other and with no other test. They are
    forks of a process that has imported PyTorch. A ``fresh`` process has not imported it: for tests
    about importing, and the default if a variable is given that the import reads.
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
