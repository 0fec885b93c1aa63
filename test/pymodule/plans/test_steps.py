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
from torch_openreg.plans import builds, launches, sharing

from device import DEVICE, module


@pytest.fixture(scope="module")
def traces(build):
    """Return by program what the CUDA build allocates and frees."""
    installed = [path for path in sys.path if path.endswith("site-packages")]
    configuration = {
        "path": [str(build.folder), str(builds.own_folder()), *installed],
        "libraries": sharing.libraries(),
        "release": build.release,
        "profiles": ["h100"],
        "planner": str(pathlib.Path(sharing.__file__).with_name("planner.py")),
    }
    program = pathlib.Path(__file__).with_name("trace_steps.py")
    result = subprocess.run(
        [sys.executable, "-I", "-S", program, json.dumps(configuration)],
        env=sharing.environment(["h100"]),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


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
