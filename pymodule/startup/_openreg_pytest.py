"""A pytest plugin with the fixture ``openreg_sanitizer``.

The module lies beside the package, because importing the package imports PyTorch, which many tests
do not need.

Pytest imports it before it captures output. The reports of ``OPENREG_SANITIZER=1`` go to the stderr
of that moment.
"""

import os
from collections.abc import Iterator
from types import ModuleType

import pytest

if os.environ.get("OPENREG_SANITIZER") == "1":
    stderr = os.dup(2)


@pytest.fixture
def openreg_sanitizer(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Watch the test with `torch.openreg.sanitizer` and return it. A finding fails the test."""
    import torch  # noqa: F401 - loads openreg
    from torch_openreg import sanitizer

    with sanitizer.watch() as watched:
        request.node._openreg_watched = watched
        yield sanitizer
        del request.node._openreg_watched


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that uses the fixture and would pass, if there are findings."""
    outcome = yield
    watched = getattr(item, "_openreg_watched", None)
    if watched is None or outcome.excinfo is not None:  # type: ignore[attr-defined]
        return
    if found := watched.findings():
        text = "\n".join(finding.text() for finding in found)
        failure = pytest.fail.Exception(text, pytrace=False)
        outcome.force_exception(failure)  # type: ignore[attr-defined]
