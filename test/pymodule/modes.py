"""Marks of tests that are not the same whichever device type openreg's devices are.

A test says `DEVICE` and `module` of `device`, and so runs in both modes: as openreg and, with
OPENREG_DEVICE_TYPE=cuda, as cuda.
"""

import pytest

from device import DEVICE


def openreg_only(subject):
    """Skip in CUDA mode what has no meaning there: it is about ``subject``."""
    return pytest.mark.skipif(DEVICE == "cuda", reason=f"not in CUDA mode: {subject}")


def fails_in_cuda_mode(reason):
    """Expect a failure in CUDA mode, which is a bug there: whoever mends it removes this mark."""
    return pytest.mark.xfail(DEVICE == "cuda", strict=True, reason=reason)
