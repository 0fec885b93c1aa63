#!/usr/bin/env python3
"""Record what PyTorch's operators return on a GPU: dtypes, layouts, values, and edge cases.

On a machine with an NVIDIA GPU, PyTorch for CUDA and expecttest, from the root of the source tree:

    python tools/record_cuda_results.py

writes test/fixtures/results-<GPU>.json.gz. It runs PyTorch's operator database with gradients and
in several layouts, and operators on values at the edges of their dtypes. A few operators run in a
process of their own.

``--compare FILE`` runs the calls of a record, also under ``openreg run``, and prints those whose
results differ: by more than rounding, or in dtype, shape, strides, or in which argument they share.
"""

import argparse
import concurrent.futures
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpu_records
import torch
from torch import Tensor

SAMPLES = 8  # of each operator and dtype
ELEMENTS = 5  # of each result
GROUP = 8  # operators in a process
FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
DTYPES = (*FLOATING, torch.complex64, torch.int64, torch.int32, torch.uint8, torch.bool)
# Operators whose values are undefined, and those that need a compiler or call another one.
SKIPPED = re.compile("empty|resize|^set_|^geqrf|^jiterator|^_refs")

DEVICE = os.environ.get("OPENREG_DEVICE_TYPE", "cuda")

Call = Callable[[], Any]
Calls = Iterator[tuple[str, Call]]


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


def attempt(call: Call) -> Any:
    try:
        return call()
    except Exception as error:
        torch.accelerator.synchronize()  # raises again if the device cannot be used any more
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"


# ---- the operator database -----------------------------------------------------------------------


def dense(tensor: Tensor) -> Tensor:
    """Return the tensor with another order of its dimensions in memory."""
    if tensor.layout != torch.strided or tensor.dim() < 2:
        return tensor
    if tensor.dim() == 4:
        other = tensor.detach().contiguous(memory_format=torch.channels_last)
    else:
        other = tensor.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    return other.requires_grad_(tensor.requires_grad)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "": lambda sample: sample,
    "gaps": lambda sample: sample.noncontiguous(),
    "transposed": lambda sample: sample.transform(
        lambda value: dense(value) if isinstance(value, Tensor) else value
    ),
}


def with_gradients(operator: Any, sample: Any) -> Any:
    """Run an operator and its backward."""
    given = list(tensors_of([sample.input, sample.args, sample.kwargs]))
    result = operator(sample.input, *sample.args, **sample.kwargs)
    found = describe(result, given)
    leaves = [tensor for tensor in given if tensor.requires_grad]
    roots = [tensor for tensor in tensors_of(result) if tensor.requires_grad]
    if not leaves or not roots:
        return found
    if sample.output_process_fn_grad:
        roots = [
            root
            for root in tensors_of(sample.output_process_fn_grad(result))
            if root.requires_grad and root.layout == torch.strided
        ]
    cotangents = [torch.rand_like(root, memory_format=torch.contiguous_format) for root in roots]

    def backward() -> Any:
        gradients = torch.autograd.grad(roots, leaves, cotangents, allow_unused=True)
        return describe([each for each in gradients if each is not None], [])

    return [found, attempt(backward)]


def seed() -> None:
    random.seed(0)
    torch.manual_seed(0)


def database() -> dict[str, Callable[[], Calls]]:
    """Return the operators of PyTorch's database, with their calls."""
    from torch.testing._internal.common_methods_invocations import op_db

    def calls_of(operator: Any) -> Calls:
        supported = operator.supported_dtypes("cuda")
        for dtype in DTYPES:
            if dtype not in supported:
                continue
            differentiable = dtype in operator.supported_backward_dtypes("cuda")
            differentiable = differentiable and operator.supports_autograd
            for layout, change in LAYOUTS.items():
                if layout and dtype not in (torch.float32, torch.int64, torch.bfloat16):
                    continue
                seed()
                try:
                    inputs = operator.sample_inputs(DEVICE, dtype, requires_grad=differentiable)
                    samples = list(itertools.islice(inputs, SAMPLES))
                except Exception as error:
                    print(operator.name, dtype, repr(error)[:100], file=sys.stderr)
                    continue
                for i, sample in enumerate(samples):
                    name = f"{str(dtype).removeprefix('torch.')} {layout} {i}"

                    def call(sample: Any = sample, change: Any = change) -> Any:
                        seed()
                        return with_gradients(operator, change(sample))

                    yield name, call

    found: dict[str, Callable[[], Calls]] = {}
    for operator in op_db:
        name = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
        if not SKIPPED.search(operator.name):
            found[name] = lambda operator=operator: calls_of(operator)
    return found


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


# ---- running -------------------------------------------------------------------------------------


def run(names: list[str]) -> None:
    """Run operators. Print a line of JSON for each."""
    warnings.simplefilter("ignore")
    known = database() | EDGE_CASES
    for name in names:
        found: dict[str, Any] = {}
        for call_name, call in known[name]():
            found[call_name] = attempt(call)
        print(json.dumps([name, found]), flush=True)


def run_in_process(names: list[str], seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", *names]
    found: dict[str, Any] = {}
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        output, errors = result.stdout, result.stderr
    except subprocess.TimeoutExpired as expired:
        output, errors = (expired.stdout or b"").decode(), "time is up"
    for line in output.splitlines():
        if line.startswith("["):
            name, calls = json.loads(line)
            found[name] = calls
    if len(found) < len(names):
        print(f"{len(found)} of {names}: {errors.strip()[-300:]}", file=sys.stderr, flush=True)
    return found


def run_all(
    names: list[str], jobs: int, seconds: float, save: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run operators in several processes. Save what they returned, and do so now and then."""
    groups = [[name] for name in names if name in EDGE_CASES]
    rest = [name for name in names if name not in EDGE_CASES]
    parts = max(1, len(rest) // GROUP)
    groups += [part for part in (rest[i::parts] for i in range(parts)) if part]
    found: dict[str, Any] = {}
    saved = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run_in_process, group, seconds) for group in groups]
        for future in concurrent.futures.as_completed(waiting):
            found |= future.result()
            if time.monotonic() - saved > 20 or all(each.done() for each in waiting):
                save({name: found[name] for name in names if name in found})
                saved = time.monotonic()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", nargs="*", metavar="OPERATOR", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", default=[], metavar="OPERATOR")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=300, help="for each process")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--compare", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return 0
    if options.compare:
        answers = gpu_records.load(options.compare)["answers"]
        names = options.only or list(answers)
        found = run_all(names, options.jobs, options.seconds, lambda answers: None)
        different = list(differences(names, answers, found))
        for case in different:
            print(json.dumps(case))
        calls = sum(len(answers[name]) for name in names)
        print(f"{options.compare.name}: {len(different)} of {calls} calls differ")
        return 1 if different else 0
    path = options.output or gpu_records.path_of("results")

    def save(answers: dict[str, Any]) -> None:
        gpu_records.save(gpu_records.versions() | {"answers": answers}, path)

    run_all(options.only or [*EDGE_CASES, *database()], options.jobs, options.seconds, save)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
