"""examples/profile_two_devices.py, run as a program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from modes import openreg_only

pytestmark = openreg_only("the examples, which say openreg")

SCRIPT = Path(__file__).parents[3] / "examples" / "profile_two_devices.py"


@pytest.fixture(scope="module")
def example(own_group, tmp_path_factory):
    """Return what the example printed and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("profile")
    command = [sys.executable, SCRIPT, "--batches", "2", "--width", "64"]
    result = subprocess.run(command, cwd=folder, env=own_group(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout, folder


def test_trace_has_both_devices(example):
    printed, folder = example
    assert "addmm_gemm_kernel" in printed
    events = json.loads((folder / "openreg-profile.json").read_text())["traceEvents"]
    kernels = [event["pid"] for event in events if event["name"] == "addmm_gemm_kernel"]
    assert sorted(kernels) == [0] * 4 + [1] * 4
    copies = [event["name"] for event in events if event.get("cat") == "gpu_memcpy"]
    assert copies == ["Memcpy PtoP (Device -> Device)"] * 2


def test_picture_is_drawn(example):
    pytest.importorskip("matplotlib")
    _, folder = example
    assert (folder / "openreg-profile.png").read_bytes().startswith(b"\x89PNG")
