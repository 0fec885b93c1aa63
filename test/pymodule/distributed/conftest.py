import pytest
from ranks import ranks_of


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Two processes with the backend "gloo"."""
    with ranks_of(tmp_path_factory.mktemp("group"), backend="gloo") as ranks:
        yield ranks
