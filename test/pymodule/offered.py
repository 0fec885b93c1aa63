"""Marks for tests of functions that only some releases of PyTorch have."""

from pathlib import Path

import pytest
import torch


def _header_has(header, word):
    """Return whether a header of PyTorch contains a word."""
    return word in (Path(torch.__file__).parent / "include" / header).read_text()


PINNED_THRESHOLDS = _header_has("c10/core/AllocatorConfig.h", "pinned_max_cached_size")
needs_pinned_thresholds = pytest.mark.skipif(
    not PINNED_THRESHOLDS,
    reason="this release of PyTorch has no thresholds for pinned memory",
)

needs_statistics_of_pools = pytest.mark.skipif(
    not _header_has("c10/core/CachingDeviceAllocator.h", "reserved_bytes_by_private_pools"),
    reason="this release of PyTorch has no statistics of private pools",
)
