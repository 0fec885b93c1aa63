"""What pytest loads when it starts: the fixture ``openreg_sanitizer``.

It lies beside the package, for to import that is to import PyTorch, which tests without devices do
not need.

When this is imported nothing is captured yet: findings of programs that are watched from the
outside are written to the stderr that there is now.
"""

import os
from collections.abc import Iterator
from types import ModuleType

import pytest

if os.environ.get("OPENREG_SANITIZER") == "1":
    stderr = os.dup(2)


@pytest.fixture
def openreg_sanitizer(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Watch the test with `torch.openreg.sanitizer`, which this is: a finding fails it."""
    import torch  # noqa: F401 - which loads the devices
    from torch_openreg import sanitizer

    with sanitizer.watch() as watched:
        request.node._openreg_watched = watched
        yield sanitizer
        del request.node._openreg_watched


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that has the fixture and did not fail, if something was found."""
    outcome = yield
    watched = getattr(item, "_openreg_watched", None)
    if watched is None or outcome.excinfo is not None:  # type: ignore[attr-defined]
        return
    if found := watched.findings():
        text = "\n".join(finding.text() for finding in found)
        failure = pytest.fail.Exception(text, pytrace=False)
        outcome.force_exception(failure)  # type: ignore[attr-defined]
