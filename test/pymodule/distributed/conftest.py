import contextlib
import functools

import pytest
from ranks import BACKENDS, Restarted, ranks_of


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Two processes with the backend "gloo"."""
    with ranks_of(tmp_path_factory.mktemp("group"), backend="gloo") as ranks:
        yield ranks


@pytest.fixture(scope="module", params=BACKENDS)
def group_of_four(tmp_path_factory, request):
    make_folder = functools.partial(tmp_path_factory.mktemp, "group")
    group = Restarted(make_folder, size=4, devices=4, backend=BACKENDS[request.param])
    with contextlib.closing(group):
        yield group


@pytest.fixture
def four_ranks(group_of_four):
    """Four processes, and that with each backend that serves tensors of the device."""
    return group_of_four.get()
