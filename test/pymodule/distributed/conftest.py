import contextlib
import functools

import pytest
from ranks import BACKEND, BACKENDS, Restarted, ranks_of
from symmetric import begin


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
    """Four processes, once for each backend that serves device tensors."""
    return group_of_four.get()


@pytest.fixture(scope="module")
def symmetric_group(tmp_path_factory, request):
    make_folder = functools.partial(tmp_path_factory.mktemp, "group")
    size = request.module.SIZE
    group = Restarted(make_folder, size=size, devices=size, backend=BACKEND)
    with contextlib.closing(group):
        yield group


@pytest.fixture
def symmetric_ranks(symmetric_group):
    """As many processes as the module asks for, each with its device."""
    ranks = symmetric_group.get()
    ranks.call(begin)
    return ranks


@pytest.fixture
def two_ranks(tmp_path):
    """A group for one test, which may abort it."""
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        ranks.call(begin)
        yield ranks
