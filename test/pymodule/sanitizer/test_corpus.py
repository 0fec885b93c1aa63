"""In each program of test/sanitizer what its first line says is found, and nothing else."""

import gc

import corpus
import pytest

from device import module

# Later names of collectives are not what programs call them.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def name(path):
    return path.stem


@pytest.fixture
def found():
    """Run a program that finds memory empty, and return what is wrong with what was found."""

    def run(path):
        module.synchronize()
        module.empty_cache()
        program = corpus.read(path)
        return corpus.mistakes(program, corpus.run(program))

    yield run
    gc.collect()


@pytest.mark.parametrize("path", corpus.programs("bugs"), ids=name)
def test_bug_is_found(found, path):
    assert not found(path)


@pytest.mark.parametrize("path", corpus.programs("right"), ids=name)
def test_nothing_is_found(found, path):
    assert not found(path)


@pytest.mark.parametrize("path", corpus.programs("host_bugs"), ids=name)
def test_access_of_the_host_is_found(found, path):
    assert not found(path)


@pytest.mark.parametrize("path", corpus.programs("host_right"), ids=name)
def test_the_host_may_do_this(found, path):
    assert not found(path)
