"""Compiled code of these tests is kept in a folder of their own, which nobody else finds."""

import os
import tempfile

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def own_cache():
    """Tests that compile the same find it; none finds what another run left."""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        yield
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
    if before is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Every test compiles for itself."""
    yield
    torch._dynamo.reset()
