"""Keeps the compiled code of these tests in a separate cache folder."""

import os
import tempfile

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def own_cache():
    """One cache for all tests of a module, empty at its start."""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        yield
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
    if before is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Reset Dynamo, so that every test compiles."""
    yield
    torch._dynamo.reset()
