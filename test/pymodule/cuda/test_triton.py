"""Triton: it interprets kernels, and its driver gets the properties of a device.

These tests do not need Triton: a fake package has its names and its import order. The example
`examples/libraries/triton_kernels.py` shows that kernels run.
"""

import pytest
import torch

# The files of a fake Triton. As in Triton, the driver is loaded before `triton.testing`.
FILES = {
    "triton/__init__.py": """
        from . import runtime
        from . import testing
        """,
    "triton/runtime/__init__.py": """
        import os
        interpreted = os.environ.get("TRITON_INTERPRET")
        from ..backends.nvidia import driver
        """,
    "triton/testing.py": "",
    "triton/backends/__init__.py": "",
    "triton/backends/nvidia/__init__.py": "",
    "triton/backends/nvidia/driver.py": """
        class CudaUtils:
            def __init__(self):
                raise AssertionError("libcuda.so cannot found!")

        class CudaDriver:
            def __init__(self):
                self.utils = CudaUtils()
        """,
}


@pytest.fixture
def not_interpreted(monkeypatch):
    """Unset the variable. This process has set it if it has loaded the real Triton."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def run(not_interpreted, python, tmp_path):
    """Run code with the fake Triton, and return its output."""
    for name, code in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line[8:] for line in code.splitlines()))

    def run(code, **environment):
        return python(code, PYTHONPATH=str(tmp_path), fresh=True, **environment).stdout.split()

    return run


PRINT = "import triton; print(triton.runtime.interpreted)"


@pytest.mark.parametrize("first", ["", "import torch;", "import torch_openreg;"])
def test_kernels_are_interpreted(run, first):
    assert run(first + PRINT) == ["1"]


@pytest.mark.parametrize("value", ["0", "1"])
def test_who_says_how_kernels_run_is_heard(run, value):
    assert run(PRINT, TRITON_INTERPRET=value) == [value]


def test_who_only_looks_for_triton_changes_nothing(run):
    code = """
    import importlib.util, os, torch
    print(importlib.util.find_spec("triton") is not None, os.environ.get("TRITON_INTERPRET"))
    """
    assert run(code) == ["True", "None"]


def test_outside_of_cuda_mode_triton_is_not_changed(run):
    assert run(PRINT, OPENREG_DEVICE_TYPE="openreg") == ["None"]


def test_driver_knows_the_devices(run):
    code = """
    import triton
    utils = triton.backends.nvidia.driver.CudaDriver().utils
    for name in "multiprocessor_count", "warpSize", "max_num_regs", "max_shared_mem":
        print(utils.get_device_properties(1)[name])
    """
    properties = torch.cuda.get_device_properties(1)
    assert list(map(int, run(code, OPENREG_PROFILE="t4,h100"))) == [
        properties.multi_processor_count,
        properties.warp_size,
        properties.regs_per_multiprocessor,
        properties.shared_memory_per_block_optin,
    ]


def test_compiled_kernels_are_refused(run):
    code = """
    import triton
    try:
        triton.backends.nvidia.driver.CudaDriver().utils.load_binary
    except NotImplementedError as error:
        print(error)
    """
    assert {"load_binary,", "TRITON_INTERPRET=1"} <= set(run(code))
