"""Operators that openreg computes with its own kernels have the peaks that the planner says."""

import pytest
import torch
from peaks import planned, taken_by
from torch_openreg.plans import launches

from device import DEVICE

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def with_plans(build):
    launches.use("planner")
    yield
    launches.use("none")


def numbers(*sizes, dtype=torch.float32):
    return torch.rand(sizes, device=DEVICE).to(dtype)


def empty(*sizes, dtype=torch.int64):
    return torch.empty(sizes, device=DEVICE, dtype=dtype)


def permutation(n, dtype=torch.int64):
    return aten.randperm.generator_out, [n], {"generator": None, "out": empty(n, dtype=dtype)}


def bag(mode, forward_only=False, include_last_offset=False):
    ends = torch.arange(0, 501, 100, device=DEVICE)
    return (
        aten._embedding_bag_forward_only.default if forward_only else aten._embedding_bag.default,
        [numbers(900, 64), torch.arange(500, device=DEVICE), ends, False, mode, False, None]
        + [include_last_offset],
        {},
    )


def gradient_of_bags(mode, dtype):
    table = numbers(900, 64, dtype=dtype)
    places = torch.arange(500, device=DEVICE)
    starts = torch.arange(0, 500, 100, device=DEVICE)
    _, bags, sizes, largest = aten._embedding_bag(table, places, starts, False, mode)
    upper = numbers(5, 64, dtype=dtype)
    return (
        aten._embedding_bag_backward.default,
        [upper, places, starts, bags, sizes, largest, 900, False, mode, False, None],
        {},
    )


def packed(n, k):
    weight = torch.zeros(n, k // 2, dtype=torch.uint8, device=DEVICE)
    return aten._convert_weight_to_int4pack(weight, 2)


CALLS = {
    "randperm, short": lambda: permutation(100),
    "randperm": lambda: permutation(40_000),
    "randperm of int32": lambda: permutation(40_000, torch.int32),
    "randperm of float32": lambda: permutation(1000, torch.float32),
    "multinomial": lambda: (aten.multinomial.default, [numbers(1000), 1], {}),
    "multinomial of rows": lambda: (aten.multinomial.default, [numbers(4, 1000), 100], {}),
    "multinomial with replacement": lambda: (
        aten.multinomial.default,
        [numbers(1000), 100, True],
        {},
    ),
    "multinomial of rows with replacement": lambda: (
        aten.multinomial.default,
        [numbers(4, 1000, dtype=torch.bfloat16), 100, True],
        {},
    ),
    "multinomial in a tensor": lambda: (
        aten.multinomial.out,
        [numbers(4, 1000), 100],
        {"out": empty(4, 100)},
    ),
    "normal with means": lambda: (aten.normal.Tensor_float, [numbers(1000)], {}),
    "normal with means in a tensor": lambda: (
        aten.normal.Tensor_float_out,
        [numbers(1000)],
        {"out": numbers(1000)},
    ),
    "dirichlet": lambda: (aten._sample_dirichlet.default, [numbers(10, 1000)], {}),
    "histogram of integers": lambda: (
        aten.histc.default,
        [torch.arange(10_000, device=DEVICE), 100, 0, 50],
        {},
    ),
    "histogram of the range of integers": lambda: (
        aten.histc.default,
        [torch.arange(10_000, device=DEVICE), 100],
        {},
    ),
    "copy of a transposed tensor": lambda: (
        aten.copy_.default,
        [numbers(100, 100), numbers(100, 100).t()],
        {},
    ),
    "repeat": lambda: (aten.repeat.default, [numbers(100), [5]], {}),
    "angle of integers": lambda: (
        aten.angle.default,
        [torch.arange(10_000, device=DEVICE)],
        {},
    ),
    "sum of bags": lambda: bag(0),
    "mean of bags": lambda: bag(1),
    "maximum of bags": lambda: bag(2),
    "bags without gradients": lambda: bag(2, forward_only=True),
    "bags up to the last offset": lambda: bag(0, include_last_offset=True),
    "gradient of rows": lambda: (
        aten.embedding_dense_backward.default,
        [numbers(500, 64, dtype=torch.bfloat16), torch.arange(500, device=DEVICE), 900, -1, False],
        {},
    ),
    "gradient of bags": lambda: gradient_of_bags(0, torch.bfloat16),
    "gradient of bags of float32": lambda: gradient_of_bags(1, torch.float32),
    "gradient of the maximum of bags": lambda: gradient_of_bags(2, torch.float16),
    "packed weight of 4 bits": lambda: (
        aten._convert_weight_to_int4pack.default,
        [torch.zeros(64, 64, dtype=torch.uint8, device=DEVICE), 2],
        {},
    ),
    "product with a weight of 4 bits": lambda: (
        aten._weight_int4pack_mm.default,
        [numbers(5, 128, dtype=torch.bfloat16), packed(64, 128), 32]
        + [numbers(4, 64, 2, dtype=torch.bfloat16)],
        {},
    ),
    "product of integers": lambda: (
        aten._int_mm.default,
        [torch.ones(64, 64, dtype=torch.int8, device=DEVICE)] * 2,
        {},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_peak_is_that_of_the_plan(name):
    operator, arguments, keywords = CALLS[name]()
    with torch.no_grad():
        _, expected = planned(operator, arguments, "planner", keywords, takes_more=False)
        for _ in range(2):  # the first call learns
            _, peak = taken_by(lambda: operator(*arguments, **keywords))
            assert peak == expected
