"""Memory of queued launches: the figures are those of launches that are waited for, also those of
temporary memory of kernels.
"""

import pytest
import torch
from torch.nn import functional as F

ROWS, COLUMNS = 64, 96


def matrix():
    torch.openreg.manual_seed(0)
    return torch.rand(ROWS, COLUMNS, device="openreg") + 1


# Of each, whether the kernel allocates memory that it frees again.
OPERATORS = {
    "add": (lambda x: x + x, False),
    "sum": (lambda x: x.sum(0), False),
    "softmax of a transposed matrix": (lambda x: x.t().softmax(0), True),
    "cumulative maximum": (lambda x: x.t().cummax(1), False),
    "sort of a transposed matrix": (lambda x: x.t().sort(1), True),
    "inverse": (lambda x: torch.linalg.inv_ex(x[:, :ROWS]), True),
    "log softmax": (lambda x: x.t().log_softmax(0), True),
    "layer norm": (lambda x: F.layer_norm(x.t(), (ROWS,)), True),
    "instance norm": (lambda x: F.batch_norm(x.t(), None, None, training=True), True),
}


def figures(operator, x):
    """Allocations, peak and what is left, of one launch whose results are dropped."""
    torch.openreg.reset_accumulated_memory_stats()
    torch.openreg.reset_peak_memory_stats()
    before = torch.openreg.memory_stats()
    result = operator(x)
    after = torch.openreg.memory_stats()
    del result
    names = ["allocation.all.allocated", "allocation.all.freed", "allocated_bytes.all.peak"]
    return {name: after[name] - before[name] for name in names}


@pytest.mark.parametrize("name", OPERATORS)
def test_figures_do_not_depend_on_the_way(close_gate, name):
    operator, has_temporaries = OPERATORS[name]
    x = matrix()
    expected = figures(operator, x)  # waited for: the first one of its kind
    assert (expected["allocation.all.freed"] > 0) == has_temporaries
    operator(x)
    torch.openreg.synchronize()
    gate = close_gate()
    assert figures(operator, x) == expected
    assert not torch.openreg.current_stream().query()
    gate.open()


@pytest.mark.parametrize("name", OPERATORS)
def test_values_do_not_depend_on_the_way(close_gate, name):
    operator, _ = OPERATORS[name]
    x = matrix()
    expected = operator(x.cpu())
    operator(x)
    torch.full((ROWS, COLUMNS), 6.0, device="openreg")
    torch.openreg.synchronize()
    gate = close_gate()
    first = operator(x)
    other = torch.full((ROWS, COLUMNS), 7.0, device="openreg")  # in memory that a kernel still uses
    second = operator(x)
    gate.open()
    torch.testing.assert_close(first, expected, check_device=False)
    torch.testing.assert_close(second, expected, check_device=False)
    assert (other == 7).all()
