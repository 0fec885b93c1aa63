"""Marks the tests of PyTorch that are expected to fail, by `expected.py`."""

import os

import pytest
from expected import expected


def pytest_collection_modifyitems(items):
    failures = expected(os.environ["BACKEND"])
    unknown = set(failures) - {item.name for item in items}
    if len(items) > 100 and unknown:  # not if only some tests were chosen
        raise pytest.UsageError(f"no such tests: {', '.join(sorted(unknown))}")
    for item in items:
        if item.name in failures:
            item.add_marker(pytest.mark.xfail(strict=True, reason=failures[item.name]))
