"""Marks for tests that depend on the device type of openreg's devices.

Most tests use `DEVICE` and `module` of `device`, and so run in both modes: with devices of type
openreg and, with OPENREG_DEVICE_TYPE=cuda, of type cuda.
"""

import pytest
import torch
from torch_openreg.commands import installation

from device import DEVICE


def openreg_only(subject):
    """Skip a test about ``subject`` in CUDA mode, where it has no meaning.

    `conftest` does so. ``-m openreg_only`` selects these tests.
    """
    return pytest.mark.openreg_only(subject)


def cuda_only(subject):
    """Skip a test about ``subject`` in openreg mode, where it has no meaning."""
    return pytest.mark.skipif(DEVICE != "cuda", reason=f"only in CUDA mode: {subject}")


def fails_in_cuda_mode(reason):
    """Expect a failure in CUDA mode, which is a bug there. The fix of the bug removes this mark."""
    return pytest.mark.xfail(DEVICE == "cuda", strict=True, reason=reason)


# For tests that start PyTorch outside CUDA mode.
needs_nvidia_packages = pytest.mark.skipif(
    bool(installation.missing_packages()),
    reason="this build of PyTorch needs NVIDIA's packages, which are absent, outside CUDA mode",
)

# For tests of libraries that are found by their SONAMEs.
needs_openregs_sonames = pytest.mark.skipif(
    DEVICE != "cuda" and torch.version.cuda is not None,
    reason="outside CUDA mode this build of PyTorch loads NVIDIA's libraries, which have the names",
)
