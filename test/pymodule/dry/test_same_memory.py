"""A dry run allocates and frees what a run with the same memory plans does, in the same order."""

import json
import os
import pathlib
import subprocess
import sys

import programs
import pytest
from dry_run import own_devices

PROGRAM = pathlib.Path(__file__).with_name("programs.py")


def run(**variables):
    """Run all programs in a process, and return what they allocated and freed."""
    environment = {
        **os.environ,
        "OPENREG_MEMORY_PLANS": "builtin",
        "OPENREG_GPU_OVERHEAD": "1",
        "OPENREG_LIBRARY_WORKSPACES": "cudnn:auto",
        "OPENREG_DEVICE_MEMORY": "4G",
        **own_devices(),
        **variables,
    }
    result = subprocess.run(
        [sys.executable, PROGRAM], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def real():
    return run()


@pytest.fixture(scope="module")
def dry():
    """Nothing is known, however small."""
    return run(OPENREG_DRY_RUN="1", OPENREG_DRY_KNOWN_BYTES="0")


@pytest.mark.parametrize("name", programs.NAMES)
def test_allocations_and_frees_are_the_same(real, dry, name):
    assert "error" not in real[name], real[name]
    assert dry[name] == real[name]
