"""The tests of CUDA mode, which starts with Python if OPENREG_DEVICE_TYPE=cuda is set.

Without the variable they are skipped.
"""

import pathlib

import pytest
import torch

from device import DEVICE

HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Skip the tests of this folder in processes where openreg's devices are not cuda."""
    if DEVICE == "cuda":
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs OPENREG_DEVICE_TYPE=cuda"))


@pytest.fixture
def first_device():
    """Let a test begin and end with the first device as the current one."""
    torch.cuda.set_device(0)
    yield
    torch.cuda.set_device(0)
