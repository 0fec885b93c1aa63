"""Calls at the edges of dtypes, and with equal elements: record_cuda_results.py."""

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from described_results import describe, tensors_of
from torch import Tensor

DEVICE = os.environ.get("OPENREG_DEVICE_TYPE", "cuda")
FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# Operators whose values are undefined, and those that need a compiler or call another one.
SKIPPED = re.compile("empty|resize|^set_|^geqrf|^jiterator|^_refs")

Call = Callable[[], Any]
Calls = Iterator[tuple[str, Call]]

# ---- edges ---------------------------------------------------------------------------------------

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
SMALL_FLOATS = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)
EDGES = (
    (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 2.0, -2.0, 3.0, -3.0, 7.0, -7.0)
    + (math.inf, -math.inf, math.nan, math.pi, -math.pi, 10.0, -10.0, 50.0, -50.0, 100.0, -100.0)
    + (255.9, 256.0, 300.0, -129.0, 65504.0, 65536.0, 1e5, -1e5, 2147483520.0, 2147483648.0)
    + (-2147483648.0, -2147484000.0, 1e10, -1e10, 9.2e18, 9.3e18, -9.3e18, 1.9e19, 1e20, -1e20)
    + (1e30, -1e30, 3e38, -3e38, 1e-8, -1e-8, 1e-30, 1e-38, 1e-40, -1e-40, 1e-45, 0.1, 0.9, 0.99)
)
FEW = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.0, math.inf, -math.inf, math.nan, 1e-40, 3e38)


def numbers(tensor: Tensor) -> list[Any]:
    """Return all elements of a tensor."""
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.is_floating_point():
        digits = 12 if tensor.dtype == torch.float64 else 7
        return [float(f"{x:.{digits}g}") for x in tensor.double().flatten().tolist()]
    return tensor.flatten().tolist()


def all_numbers(call: Call) -> Call:
    return lambda: [numbers(tensor) for tensor in tensors_of(call())]


def edges_of(dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return torch.tensor(EDGES, dtype=torch.float64).to(dtype).to(DEVICE)
    if dtype.is_complex:
        pairs = list(itertools.product(FEW, repeat=2))
        return torch.tensor([complex(*pair) for pair in pairs], dtype=dtype).to(DEVICE)
    limits = torch.iinfo(dtype)
    values = [0, 1, 2, 3, 5, 7, 31, 32, 63, 64, 100, limits.max, limits.max - 1, limits.min]
    values += [] if limits.min == 0 else [-1, -2, -3, -5, -7, -64, limits.min + 1]
    return torch.tensor(values, dtype=dtype).to(DEVICE)


# Dtypes whose elements are read as those of another dtype.
VIEWED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def conversions() -> Calls:
    for source in (*FLOATING, *SMALL_FLOATS, torch.int64, torch.int32):
        for target in (*INTEGERS, *UNSIGNED, torch.bool, *FLOATING, *SMALL_FLOATS):
            values = edges_of(torch.float32 if source in SMALL_FLOATS else source).to(source)

            def call(values: Tensor = values, target: torch.dtype = target) -> Tensor:
                converted = values.to(target)
                is_viewed = target.itemsize == 1 or target in UNSIGNED
                return converted.view(VIEWED[target.itemsize]) if is_viewed else converted

            yield f"{source} to {target}", all_numbers(call)


def unary() -> Calls:
    from torch.testing._internal.common_methods_invocations import unary_ufuncs

    for operator in unary_ufuncs:
        if operator.variant_test_name or SKIPPED.search(operator.name):
            continue
        for dtype in (*FLOATING, torch.complex64, torch.complex128, *INTEGERS):
            if dtype in operator.supported_dtypes("cuda"):
                values = edges_of(dtype)

                def call(operator: Any = operator, values: Tensor = values) -> Any:
                    return operator(values)

                yield f"{operator.name} {dtype}", all_numbers(call)


def by_scalars() -> Calls:
    """Yield operators on integers and a number of the host."""
    for dtype in INTEGERS:
        values = edges_of(dtype)
        for other in (0, -1, 3, -3):
            if dtype == torch.uint8 and other < 0:
                continue
            calls: dict[str, Call] = {
                "//": lambda values=values, other=other: values // other,
                "%": lambda values=values, other=other: values % other,
                "fmod": lambda values=values, other=other: values.fmod(other),
                "trunc": lambda values=values, other=other: values.div(
                    other, rounding_mode="trunc"
                ),
                "from": lambda values=values, other=other: other // values,
                "remainder from": lambda values=values, other=other: torch.remainder(other, values),
            }
            for name, call in calls.items():
                yield f"{dtype} {name} {other}", all_numbers(call)


def ties() -> Calls:
    """Yield operators that choose among equal elements. Their results are digests."""
    calls: dict[str, Callable[[Tensor], Any]] = {
        "max": lambda x: x.max(-1),
        "min": lambda x: x.min(-1),
        "max of columns": lambda x: x.max(0),
        "argmax": lambda x: x.argmax(),
        "argmin": lambda x: x.argmin(-1),
        "median": lambda x: x.median(-1),
        "nanmedian": lambda x: x.nanmedian(-1) if x.is_floating_point() else x.median(-1),
        "mode": lambda x: x.mode(-1),
        "kthvalue": lambda x: x.kthvalue(x.shape[-1] // 2 + 1, -1),
        "topk": lambda x: x.topk(min(7, x.shape[-1]), -1),
        "topk smallest": lambda x: x.topk(min(7, x.shape[-1]), -1, largest=False),
        "topk half": lambda x: x.topk(x.shape[-1] // 2, -1),
        "topk unsorted": lambda x: x.topk(x.shape[-1] // 2, -1, sorted=False),
        "sort": lambda x: x.sort(-1),
        "sort descending": lambda x: x.sort(-1, descending=True),
        "sort columns": lambda x: x.sort(0),
        "argsort": lambda x: x.argsort(-1),
        "cummax": lambda x: x.cummax(-1),
        "cummin": lambda x: x.cummin(0),
        "unique": lambda x: x.unique(return_inverse=True, return_counts=True),
        "unique of dim": lambda x: x.unique(dim=0, return_inverse=True, return_counts=True),
        "aminmax": lambda x: x.aminmax(),
        "nonzero": lambda x: x.nonzero(),
        "histc": lambda x: x.float().histc(10, 0, 5),
        "bincount": lambda x: x.flatten().long().clamp(0).bincount(),
        "searchsorted": lambda x: torch.searchsorted(x.sort(-1).values, x[..., :1].contiguous()),
        "max_pool1d": lambda x: torch.nn.functional.max_pool1d(
            x[None].float(), 3, return_indices=True
        ),
        "adaptive_max_pool1d": lambda x: torch.nn.functional.adaptive_max_pool1d(
            x[None].float(), 3, return_indices=True
        ),
    }
    for rows, columns in ((1, 8), (3, 33), (4, 257), (5, 1025), (2, 5000), (2, 40000)):
        source = torch.Generator().manual_seed(rows * columns)
        drawn = torch.randint(0, 5, (rows, columns), generator=source)
        for kind in ("int64", "int32", "uint8", "float32", "float16", "nan"):
            values = drawn.float() if kind == "nan" else drawn.to(getattr(torch, kind))
            if kind == "nan":
                values[drawn == 3] = math.nan
            for name, call in calls.items():

                def run(call: Any = call, values: Tensor = values) -> Any:
                    return describe(call(values.to(DEVICE)), [])

                yield f"{name} {rows}x{columns} {kind}", run


EDGE_CASES: dict[str, Callable[[], Calls]] = {
    "edges: conversions": conversions,
    "edges: unary": unary,
    "edges: by scalars": by_scalars,
    "edges: ties": ties,
}
