"""The tests of memory plans. Those that need the planner are skipped without a CUDA build."""

import pytest
from torch_openreg.plans import builds
from torch_openreg.plans.client import DEFAULT_SETTINGS, Client
from torch_openreg.plans.text import parse_call

PROFILE = "h100"


@pytest.fixture(scope="session")
def build():
    """Return the CUDA build that the planner runs."""
    try:
        return builds.find()
    except builds.NoBuild as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def client(build):
    """Yield a client whose planner ends with the module."""
    made = Client([PROFILE, "a100"])
    yield made
    made.end()


@pytest.fixture
def ask(client):
    """Ask for the plan of a call whose arguments are text."""

    def ask(operator, arguments="", settings=DEFAULT_SETTINGS, profile=PROFILE):
        given, named = parse_call(arguments.split())
        return client.ask((operator, given, named, settings, profile))

    return ask
