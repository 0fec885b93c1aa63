"""The sanitizer finds the bug that each program of test/sanitizer names, and nothing else."""

import gc

import corpus
import pytest

from device import module

# Programs use names of collectives that later versions of PyTorch deprecate.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def name(path):
    return path.stem


@pytest.fixture
def found():
    """Run a program in a pool without blocks of others; return what is wrong with the findings."""

    def run(path):
        module.synchronize()
        program = corpus.read(path)
        with module.use_mem_pool(module.MemPool()):
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
def test_host_access_is_found(found, path):
    assert not found(path)


@pytest.mark.parametrize("path", corpus.programs("host_right"), ids=name)
def test_nothing_is_found_for_the_host(found, path):
    assert not found(path)
