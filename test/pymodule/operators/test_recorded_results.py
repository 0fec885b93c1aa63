"""Compares results with records of GPUs, made by tools/record_cuda_results.py.

The first test runs the edges of the record: values at the limits of dtypes, divisions by zero, and
which of several equal elements an operator chooses. It also runs `mode` of PyTorch's operator
database. The others test what the record showed, with other arguments: the kernels in
pymodule/bridge/kernels, layouts, and functions in half precision.
"""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from device import DEVICE

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools" / "record_cuda_results.py"
RECORDS = sorted((ROOT / "test" / "fixtures").glob("results-*.json.gz"))
EDGES = ("edges: conversions", "edges: by scalars", "edges: ties", "edges: unary", "mode")

# What differs, by the name of the call. docs/limits.md has the reasons.
EXPECTED = {
    # The record is of 2.11. Since then these conversions return the largest number instead of NaN.
    "edges: conversions": r"float8_e4m3fn\b",
    # CUDA's choice depends on the order in which its threads write. Each NaN is a mode of its own.
    "edges: ties": r"^(nan)?median |^(mode|unique) .* nan$",
    # Complex numbers with an infinite or a tiny part; approximations of the GPU.
    "edges: unary": r"torch\.complex|^special\.ndtr torch\.int",
}
SMALLEST = 1.2e-38  # float32 has fewer digits below it


def is_expected(name, call, results, others):
    if name in EXPECTED and re.search(EXPECTED[name], call):
        return True
    return name == "edges: unary" and all(
        abs(x) < SMALLEST or x != x or x == pytest.approx(y, rel=1e-4)
        for x, y in zip(results[0], others[0], strict=True)
    )


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_edges_are_those_of_the_recorded_gpu(path):
    result = subprocess.run(
        [sys.executable, str(TOOL), "--jobs", "1", "--compare", str(path), "--only", *EDGES],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENREG_DEVICE_TYPE": DEVICE},
        cwd=TOOL.parent,
        timeout=300,
        check=False,
    )
    lines = result.stdout.splitlines()
    assert lines and lines[-1].endswith("calls differ"), result.stderr
    unexpected = []
    for line in lines[:-1]:
        name, call, kind, results, others = json.loads(line)
        if not is_expected(name, call, results, others):
            unexpected.append((name, call, kind))
    assert unexpected == []


# ---- integers ------------------------------------------------------------------------------------

DIVISIONS = {
    "floor": lambda x, y, **out: torch.div(x, y, rounding_mode="floor", **out),
    "trunc": lambda x, y, **out: torch.div(x, y, rounding_mode="trunc", **out),
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}
# Of 7, -7 by 0, and of the smallest number by -1.
QUOTIENTS = {
    "floor": (-1, -2, -(2**31)),
    "trunc": (-1, -1, -(2**31)),
    "floor_divide": (-1, -2, -(2**31)),
    "remainder": (-1, -1, 0),
    "fmod": (-1, -1, 0),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_division_of_integers_by_zero(name):
    divide = DIVISIONS[name]
    x = torch.tensor([7, -7, -(2**31), 9, 9], dtype=torch.int32, device=DEVICE)
    y = torch.tensor([0, 0, -1, 2, -2], dtype=torch.int32, device=DEVICE)
    rest = divide(x[3:].cpu(), y[3:].cpu()).tolist()
    expected = [*QUOTIENTS[name], *rest]
    assert divide(x, y).tolist() == expected
    out = torch.empty(0, dtype=torch.int32, device=DEVICE)
    divide(x, y, out=out)
    assert out.tolist() == expected
    # broadcast: a row by a column
    assert divide(x, y[:, None])[0].tolist() == [divide(each, y[0]).item() for each in x]


def test_division_in_place_and_of_other_dtypes():
    x = torch.tensor([[7, -7], [8, 5]], device=DEVICE)
    x.t().remainder_(torch.tensor([0, 3], dtype=torch.int16, device=DEVICE)[:, None])
    assert x.tolist() == [[4294967295, 2], [4294967295, 2]]
    x.floor_divide_(0)
    assert x.tolist() == [[4294967295] * 2] * 2
    # Division of floats is as before, also if one operand is an integer.
    assert torch.tensor([1.0], device=DEVICE).div(0, rounding_mode="floor").item() == torch.inf
    assert torch.tensor([1], device=DEVICE).div(0).item() == torch.inf


def test_division_by_zero_in_a_capture():
    x = torch.full((4,), 7, device=DEVICE)
    zero = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    module = getattr(torch, DEVICE)
    graph = module.CUDAGraph()
    x.remainder(zero)
    with module.graph(graph):
        result = x.remainder(zero)
    zero.fill_(5)
    graph.replay()
    assert result.tolist() == [2] * 4
    zero.zero_()
    graph.replay()
    assert result.tolist() == [4294967295] * 4


# ---- conversions ---------------------------------------------------------------------------------


def test_conversions_that_are_not_contiguous():
    x = torch.tensor([[torch.inf, -torch.inf, 1.5], [torch.nan, 3e9, -1.5]], device=DEVICE)
    expected = [[2**31 - 1, 0], [-(2**31), 2**31 - 1], [1, -1]]
    assert x.t().to(torch.int32).tolist() == expected
    into = torch.zeros(3, 4, dtype=torch.int32, device=DEVICE)
    into[:, ::2] = x.t()
    assert into[:, ::2].tolist() == expected
    assert not into[:, 1::2].any()
    column = torch.empty(2, 3, dtype=torch.uint8, device=DEVICE).copy_(x[:, :1])
    assert column.tolist() == [[255] * 3, [0] * 3]


def test_numbers_are_converted_where_the_source_is():
    value = torch.tensor([torch.inf])
    on_device = torch.empty(1, dtype=torch.int32, device=DEVICE)
    assert on_device.copy_(value).item() == value.to(torch.int32).item()  # by the host
    on_host = torch.empty(1, dtype=torch.int32)
    assert on_host.copy_(value.to(DEVICE)).item() == 2**31 - 1


# ---- equal elements ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", (33, 100))
def test_sort_is_stable_as_on_a_gpu(length):
    x = torch.arange(length, device=DEVICE) % 3
    for descending in (False, True):
        by_host = x.cpu().sort(stable=True, descending=descending)
        assert x.sort(descending=descending).indices.tolist() == by_host.indices.tolist()
    assert x.argsort().tolist() == x.cpu().argsort(stable=True).tolist()


def test_sort_of_short_rows():
    x = torch.tensor([3, 3, 1, 4, 2, 1, 1, 0], device=DEVICE)
    assert x.sort(stable=True).indices.tolist() == [7, 2, 5, 6, 4, 0, 1, 3]
    values, indices = x.sort()  # the H100's order
    assert indices.tolist() == [7, 5, 2, 6, 4, 1, 0, 3]
    assert values.tolist() == sorted(x.tolist())
    columns = torch.stack([x, x.flip(0)], dim=1)
    out = (torch.empty_like(columns), torch.empty_like(columns))
    torch.sort(columns, dim=0, out=out)
    assert out[1][:, 0].tolist() == indices.tolist()
    assert out[0][:, 1].tolist() == values.tolist()
    into_itself = x.clone()
    out = (into_itself, torch.empty_like(x))
    assert torch.sort(into_itself, out=out).indices.tolist() == indices.tolist()
    assert into_itself.tolist() == values.tolist()


def test_chosen_elements_get_the_gradient():
    x = torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0], device=DEVICE, requires_grad=True)
    x.topk(2, sorted=False).values.sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 0, 0]
    assert x.kthvalue(4).indices.item() == 1
    assert x.mode().indices.item() == 3


def test_mode_of_long_rows_is_one_of_the_most_frequent_values():
    for length in (33, 700, 2048, 2049):
        x = torch.arange(length, device=DEVICE).remainder_(length // 3).repeat(2, 1)
        values, indices = x.mode(-1)
        counts = (x == values[:, None]).sum(-1)
        assert counts.tolist() == [x[0].bincount().max().item()] * 2
        assert torch.equal(x.gather(1, indices[:, None])[:, 0], values)


def test_empty_and_single_rows():
    for shape in ((0,), (0, 3), (3, 0), (1,), ()):
        x = torch.zeros(shape, device=DEVICE)
        y = torch.zeros(shape)
        assert x.sort(-1).indices.tolist() == y.sort(-1).indices.tolist()
    x = torch.zeros(3, 1, device=DEVICE)
    assert x.topk(1).indices.tolist() == [[0]] * 3
    assert x.mode().indices.tolist() == [0] * 3
    assert torch.tensor(2.0, device=DEVICE).kthvalue(1).indices.item() == 0
    assert torch.tensor(2.0, device=DEVICE).topk(1).indices.item() == 0


# ---- layouts -------------------------------------------------------------------------------------


def test_shuffles_are_contiguous():
    image = torch.arange(2 * 4 * 6 * 6.0, device=DEVICE).reshape(2, 4, 6, 6)
    image = image.contiguous(memory_format=torch.channels_last)
    for result, expected in (
        (F.pixel_shuffle(image, 2), F.pixel_shuffle(image.cpu(), 2)),
        (F.pixel_unshuffle(image, 2), F.pixel_unshuffle(image.cpu(), 2)),
        (F.channel_shuffle(image, 2), F.channel_shuffle(image.cpu(), 2)),
    ):
        assert result.is_contiguous()
        assert torch.equal(result.cpu(), expected)


# ---- half precision ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ("logit", "special.entr", "special.i0e"))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_functions_are_rounded_once(name, dtype):
    function = functools.reduce(getattr, name.split("."), torch)
    x = (torch.arange(1, 200) / 200).to(dtype)
    assert torch.equal(function(x.to(DEVICE)).cpu(), function(x.float()).to(dtype))


def test_small_numbers_in_bfloat16_have_an_error_function():
    x = torch.tensor([1e-8, -1e-30], dtype=torch.bfloat16)
    assert torch.equal(torch.erf(x.to(DEVICE)).cpu(), torch.erf(x.float()).to(x.dtype))
