"""Training steps with plans have the peaks of PyTorch's CUDA build.

The CUDA build runs the same steps over the planner's stand-ins. What it allocates and frees is
done again here with empty tensors, by an allocator with CUDA's policy.
"""

import gc
import json
import pathlib
import subprocess
import sys

import pytest
import steps
import torch
from torch_openreg.plans import builds, launches, libraries, sharing

from device import DEVICE, module

# Recurrent layers and attention do not use cuDNN here.
PROGRAMS_WITH_CUDNN = ("convolutions", "u-net")
WORKSPACES = "cudnn:8M"
FOLDER = pathlib.Path(__file__).parent


def trace(build, programs):
    """Return by program what the CUDA build allocates and frees."""
    installed = [path for path in sys.path if path.endswith("site-packages")]
    configuration = {
        "path": [str(build.folder), str(builds.own_folder()), *installed],
        "libraries": sharing.libraries(),
        "release": build.release,
        "profiles": ["h100"],
        "workspaces": libraries.workspaces(),
        "planner": str(pathlib.Path(sharing.__file__).with_name("planner.py")),
        "programs": list(programs),
    }
    program = FOLDER / "trace_steps.py"
    result = subprocess.run(
        [sys.executable, "-I", "-S", program, json.dumps(configuration)],
        env=sharing.environment(["h100"]),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def traces(build):
    return trace(build, steps.PROGRAMS)


@pytest.fixture(scope="module")
def traces_with_cudnn(build):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(libraries.VARIABLE, WORKSPACES)
        libraries.workspaces.cache_clear()
        found = trace(build, PROGRAMS_WITH_CUDNN)
    libraries.workspaces.cache_clear()
    return found


def peaks_of(work):
    """Return the peaks of allocated and of reserved memory."""
    gc.collect()
    module.synchronize()
    module.empty_cache()
    module.reset_peak_memory_stats()
    before = module.memory_allocated(), module.memory_reserved()
    work()
    module.synchronize()
    peaks = module.max_memory_allocated(), module.max_memory_reserved()
    return [peak - base for peak, base in zip(peaks, before, strict=True)]


def repeat(trace):
    live = {}
    for address, size in trace:
        if size > 0:
            live[address] = torch.empty(size, dtype=torch.uint8, device=DEVICE)
        else:
            live.pop(address, None)


@pytest.mark.parametrize("source", ["planner", "builtin"])
@pytest.mark.parametrize("name", steps.PROGRAMS)
def test_peaks_are_those_of_cuda(traces, name, source):
    expected = peaks_of(lambda: repeat(traces[name]))
    launches.use(source)
    try:
        assert peaks_of(lambda: steps.train(name, DEVICE)) == expected
    finally:
        launches.use("none")


TELL_PEAKS = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import steps, test_steps
from device import DEVICE
for name in test_steps.PROGRAMS_WITH_CUDNN:
    print(*test_steps.peaks_of(lambda: steps.train(name, DEVICE)))
"""


@pytest.mark.parametrize("source", ["planner", "builtin"])
def test_peaks_with_cudnn_are_those_of_cuda(traces_with_cudnn, python, source):
    settings = {"OPENREG_MEMORY_PLANS": source, libraries.VARIABLE: WORKSPACES}
    found = python(TELL_PEAKS, fresh=True, **settings).stdout.splitlines()
    for name, line in zip(PROGRAMS_WITH_CUDNN, found, strict=True):
        assert any(size == 8 << 20 for _, size in traces_with_cudnn[name])  # a workspace
        expected = peaks_of(lambda name=name: repeat(traces_with_cudnn[name]))
        assert [int(peak) for peak in line.split()] == expected, name
