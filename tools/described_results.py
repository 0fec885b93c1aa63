"""Descriptions of results, and how two of them differ: record_cuda_results.py."""

import math
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

ELEMENTS = 5  # of each result

# ---- describing results --------------------------------------------------------------------------


def tensors_of(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_of(each)


def values_of(tensor: Tensor) -> list[Any]:
    """Return a number that depends on all elements, and some elements."""
    on_host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if on_host.is_complex():
        on_host = torch.view_as_real(on_host)
    flat = on_host.flatten()
    if not len(flat):
        return []
    places = sorted({round(i * (len(flat) - 1) / (ELEMENTS - 1)) for i in range(ELEMENTS)})
    if not flat.is_floating_point():
        whole: Any = zlib.crc32(flat.view(torch.uint8).numpy().tobytes())
        return [whole, *(flat[place].item() for place in places)]
    exact = flat.double()
    digits = 12 if flat.dtype == torch.float64 else 7
    whole = exact[exact.isfinite()].abs().mean().item()
    return [float(f"{number:.{digits}g}") for number in (whole, *exact[places].tolist())]


def describe(result: Any, given: list[Tensor]) -> list[Any]:
    """Return for each tensor: dtype, shape, strides, the argument that it shares, values."""
    described: list[Any] = []
    shared = {tensor.untyped_storage().data_ptr(): i for i, tensor in enumerate(given)}
    for tensor in tensors_of(result):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout != torch.strided or tensor.is_nested:
            described.append([dtype, str(tensor.layout)])
            continue
        of = shared.get(tensor.untyped_storage().data_ptr(), -1) if tensor.numel() else -1
        values = values_of(tensor)
        described.append([dtype, list(tensor.shape), list(tensor.stride()), of, values])
    return described


# ---- comparing -----------------------------------------------------------------------------------

TOLERANCES = {"float64": 1e-7, "float32": 1e-3, "complex64": 1e-3}
COARSE = 2e-2  # of 16 bits


def is_result(value: Any) -> bool:
    return isinstance(value, list) and len(value) in (2, 5) and isinstance(value[0], str)


def results_of(value: Any) -> Iterator[Any]:
    """Yield the descriptions and errors in what a call returned."""
    if isinstance(value, list) and not is_result(value):
        for each in value:
            yield from results_of(each)
    else:
        yield value


def is_near(dtype: str, one: list[float], other: list[float]) -> bool:
    if len(one) != len(other) or "float" not in dtype and "complex" not in dtype:
        return one == other
    size = max((abs(x) for x in one if math.isfinite(x)), default=1.0)
    tolerance = TOLERANCES.get(dtype, COARSE) * max(size, 1e-3)
    return all(
        x == y or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= tolerance
        for x, y in zip(one, other, strict=True)
    )


def is_same_number(x: Any, y: Any, tolerance: float) -> bool:
    if x == y or (x != x and y != y):
        return True
    is_finite = isinstance(x, float) and isinstance(y, float) and math.isfinite(x - y)
    return is_finite and abs(x - y) <= tolerance * max(abs(x), abs(y))


def difference(call: str, one: Any, other: Any) -> str:
    """Say in which way the results of two calls differ. Empty: they do not."""
    tolerance = COARSE if "float16" in call else 1e-4  # of single numbers
    ones, others = list(results_of(one)), list(results_of(other))
    if len(ones) != len(others):
        return "number of results"
    for x, y in zip(ones, others, strict=True):
        if not is_result(x) or not is_result(y):
            if not is_same_number(x, y, tolerance):
                return "error" if isinstance(x, str) or isinstance(y, str) else "value"
        elif x[:4] != y[:4]:
            names = ("dtype", "shape", "strides", "shared argument")
            return next(name for name, a, b in zip(names, x, y, strict=False) if a != b)
        elif len(x) == 5 and not is_near(x[0], x[4], y[4]):
            return "value"
    return ""


def differences(names: list[str], answers: dict[str, Any], found: dict[str, Any]) -> Iterator[Any]:
    """Yield the calls that differ: operator, call, difference, both results."""
    for name in names:
        for call, answer in answers[name].items():
            other = found.get(name, {}).get(call, "not run")
            kind = difference(call, answer, other)
            if kind:
                yield name, call, kind, answer, other
