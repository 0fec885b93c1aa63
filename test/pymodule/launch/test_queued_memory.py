"""Memory of queued launches: temporary memory counts as in inline launches."""

import gc
import threading

import pytest
import torch
from torch.nn import functional as F

from device import DEVICE, module

ROWS, COLUMNS = 64, 96


def matrix():
    module.manual_seed(0)
    return torch.rand(ROWS, COLUMNS, device=DEVICE) + 1


# Each operator, and whether it has temporary memory on a GPU. The CPU kernels of most have some.
OPERATORS = {
    "add": (lambda x: x + x, False),
    "sum": (lambda x: x.sum(0), False),
    "softmax of a transposed matrix": (lambda x: x.t().softmax(0), False),
    "cumulative maximum": (lambda x: x.t().cummax(1), False),
    "sort of a transposed matrix": (lambda x: x.t().sort(1), False),
    "inverse": (lambda x: torch.linalg.inv_ex(x[:, :ROWS]), False),
    "log softmax": (lambda x: x.t().log_softmax(0), False),
    "logarithm of a sum": (lambda x: x.logsumexp(0), True),
    "layer norm": (lambda x: F.layer_norm(x.t(), (ROWS,)), True),
    "instance norm": (lambda x: F.batch_norm(x.t(), None, None, training=True), True),
}


@pytest.fixture(autouse=True)
def no_garbage():
    """Collect garbage of other tests first, and none during the test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def figures(operator, x):
    """Return the allocations, the frees and the peak of one launch."""
    module.reset_accumulated_memory_stats()
    module.reset_peak_memory_stats()
    before = module.memory_stats()
    result = operator(x)
    after = module.memory_stats()
    del result
    names = ["allocation.all.allocated", "allocation.all.freed", "allocated_bytes.all.peak"]
    return [after[name] - before[name] for name in names]


@pytest.mark.parametrize("name", OPERATORS)
def test_temporary_memory_counts(close_gate, name):
    operator, has_temporaries = OPERATORS[name]
    x = matrix()
    allocated, freed, peak = figures(operator, x)  # inline, because it is the first of its kind
    assert (freed > 0) == has_temporaries
    operator(x)
    module.synchronize()
    gate = close_gate()
    queued = figures(operator, x)
    assert not module.current_stream().query()
    assert queued[:2] == [allocated, freed]
    assert (
        queued[2] >= peak
    )  # allocated at once, while an inline kernel may free before it allocates
    gate.open()


def test_temporary_memory_is_not_reused_before_the_launch_is_queued():
    """Threads share one stream, and each allocates where others have just freed."""
    x = torch.ones(4, device=DEVICE)

    def work(results):
        for _ in range(600):
            results.append((x * 2 * 2).logsumexp(0))

    results = [[] for _ in range(4)]
    threads = [threading.Thread(target=work, args=(each,)) for each in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = torch.full((4,), 4.0).logsumexp(0).item()
    assert {result.item() for each in results for result in each} == {expected}


@pytest.mark.parametrize("name", OPERATORS)
def test_values_do_not_depend_on_the_way(close_gate, name):
    operator, _ = OPERATORS[name]
    x = matrix()
    expected = operator(x.cpu())
    operator(x)
    torch.full((ROWS, COLUMNS), 6.0, device=DEVICE)
    module.synchronize()
    gate = close_gate()
    first = operator(x)
    other = torch.full(
        (ROWS, COLUMNS), 7.0, device=DEVICE
    )  # in memory that a kernel is still using
    second = operator(x)
    gate.open()
    torch.testing.assert_close(first, expected, check_device=False)
    torch.testing.assert_close(second, expected, check_device=False)
    assert (other == 7).all()
