#!/usr/bin/env python3
"""Record the memory that PyTorch's operators take and free on a GPU while they run.

On a machine with an NVIDIA GPU and PyTorch for CUDA, from the root of the source tree:

    python tools/record_cuda_operators.py

writes test/fixtures/operators-<GPU>.json.gz. It runs the calls of test/pymodule/plans/grids.py,
PyTorch's operator database with gradients, calls of NVIDIA's libraries in several sizes, and one
step of each program of record_cuda_programs.py. It records each operator that reaches the device,
once for each signature. A signature is what memory plans depend on (plans/signature.py).

``--part 2/4`` does every fourth call and needs ``--output``. ``--merge FILES`` joins such files.
``--seconds`` ends the recording early.
"""

import argparse
import importlib
import importlib.util
import itertools
import random
import sys
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_records
import library_calls
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

PLANS = gpu_records.ROOT / "pymodule" / "torch_openreg" / "plans"
GRIDS = gpu_records.ROOT / "test" / "pymodule" / "plans" / "grids.py"
SUBJECTS = ("grids", "database", "libraries", "programs", "all")
MODULES = ("signature", "text")
LARGEST_CACHE = 8 << 30  # bytes that are kept for later calls
DATABASE_DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def load_module(name: str, path: Path) -> types.ModuleType:
    """Load a module of the source tree without its package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def storage_of(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage._cdata, storage.nbytes()


def load_plans() -> tuple[Any, ...]:
    """Return the modules ``signature`` and ``text``, also where openreg is not installed."""
    if "torch_openreg" in sys.modules:  # under openreg run
        return tuple(importlib.import_module(f"torch_openreg.plans.{name}") for name in MODULES)
    names = ("torch_openreg", "torch_openreg._C", "torch_openreg.plans", "torch_openreg.variables")
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torch_openreg"]._C = types.SimpleNamespace(storage_of=storage_of)
    prefix = "torch_openreg.plans"
    client = types.ModuleType(f"{prefix}.client")
    client.Plan = client.PlannedOutput = None  # for annotations
    sys.modules[client.__name__] = client
    load_module(f"{prefix}.dtypes", PLANS / "dtypes.py")
    signature = load_module(f"{prefix}.signature", PLANS / "signature.py")
    return signature, load_module(f"{prefix}.text", PLANS / "text.py")


def trace() -> list[tuple[str, int, int]]:
    """Return what the device's allocator did: action, address, bytes as requested."""
    entries = torch._C._cuda_memorySnapshot(None)["device_traces"][0]
    return [(entry["action"], entry["addr"], entry["size"]) for entry in entries]


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_of(each)


class Recorder(TorchDispatchMode):
    """Records each operator with a tensor on the device."""

    def __init__(self, signature: Any) -> None:
        super().__init__()
        self._signature = signature
        self._known: set[str] = set()
        self.answers: list[gpu_records.Record] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        everything = [*arguments, *keywords.values()]
        is_here = any(tensor.is_cuda for tensor in tensors_of(everything))
        if not is_here:
            return function(*arguments, **keywords)
        try:
            given, named = self._signature.describe(arguments, keywords)
        except (self._signature.Unsupported, RuntimeError):
            return function(*arguments, **keywords)
        name = str(function._schema).partition("(")[0]
        settings = self._signature.current_settings()
        key = repr((name, given, named, settings))
        if key in self._known:
            return function(*arguments, **keywords)
        self._known.add(key)
        result, events, blocks = self._run(function, arguments, keywords)
        self.answers.append(
            {
                "operator": name,
                "arguments": given,
                "keywords": named,
                "settings": settings,
                "events": events,
                "results": blocks,
            }
        )
        return result

    def _run(self, function: Any, arguments: Any, keywords: Any) -> tuple[Any, Any, Any]:
        """Run an operator. Return its result, the events, and the results' sizes and blocks."""
        start = torch.cuda.memory._record_memory_history
        start("all", context=None, clear_history=True)
        try:
            result = function(*arguments, **keywords)
            entries = trace()
        finally:
            start(None)
        live: dict[int, int] = {}
        events: list[int] = []
        count = 0
        for action, address, size in entries:
            if action == "alloc":
                count += 1
                live[address] = count
                events.append(size)
            elif action == "free_requested" and address in live:
                events.append(-live.pop(address))
        results = [
            [
                str(tensor.dtype)[6:],
                list(tensor.shape),
                list(tensor.stride()),
                live.get(tensor.untyped_storage().data_ptr(), 0) if tensor.is_cuda else -1,
            ]
            for tensor in tensors_of(result)
            if tensor.layout is torch.strided and not tensor.is_nested
        ]
        return result, events, results


def warm_up() -> None:
    """Let the libraries take what they keep, in the main thread and in autograd's."""
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.complex64):
        x = torch.ones(64, 64, dtype=dtype, device="cuda", requires_grad=True)
        bias = torch.ones(64, dtype=dtype, device="cuda", requires_grad=True)
        torch.nn.functional.linear(x, x, bias).sum().abs().backward()
    torch.linalg.svd(x.detach().float() if not x.is_complex() else x.detach())
    torch.linalg.inv(torch.eye(8, device="cuda"))
    torch.cuda.synchronize()


def make(value: Any, storages: dict[int, torch.Tensor]) -> Any:
    """Make the argument that a signature describes. Integers are zero, which any index may be."""
    if isinstance(value, list):
        return [make(each, storages) for each in value]
    if not isinstance(value, tuple):
        return value
    kind, *rest = value
    if kind == "dtype":
        return getattr(torch, rest[0])
    if kind == "device":
        return torch.device(rest[0])
    assert kind == "tensor"
    dtype, sizes, strides, offset, storage, nbytes, flags = rest
    dtype = getattr(torch, dtype)
    if storage not in storages:
        device = "cpu" if "h" in flags else "cuda"
        count = nbytes // dtype.itemsize
        base = torch.empty(count, dtype=dtype, device=device)
        storages[storage] = base.fill_(0.5) if dtype.is_floating_point else base.zero_()
    return storages[storage].as_strided(sizes, strides, offset)


def operator_of(name: str) -> Any:
    namespace, _, name = name.partition("::")
    name, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def run_grids(text: Any, chosen: Any) -> Iterator[str]:
    """Run the calls of the grids. Yield the errors."""
    grids = load_module("grids", GRIDS)
    calls = [call for family in grids.FAMILIES.values() for call in family()]
    for operator, line in chosen(dict.fromkeys(calls)):
        given, named = text.parse_call(line.split())
        storages: dict[int, torch.Tensor] = {}
        try:
            with _disable_current_modes():
                arguments = make(given, storages)
                keywords = {name: make(value, storages) for name, value in named.items()}
            with torch.no_grad():
                operator_of(operator)(*arguments, **keywords)
            del arguments, keywords
        except Exception as error:
            yield f"{operator} {line}: {str(error).splitlines()[:1]}"
        if torch.cuda.memory_reserved() > LARGEST_CACHE:
            torch.cuda.empty_cache()


def run_database(chosen: Any) -> Iterator[str]:
    """Run the samples of the operator database and their gradients. Yield the errors."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in chosen(op_db):
        for dtype in DATABASE_DTYPES:
            if dtype not in info.supported_dtypes("cuda"):
                continue
            with_gradients = dtype is torch.float32 and info.supports_autograd
            torch.manual_seed(0)
            random.seed(0)
            try:
                for sample in info.sample_inputs("cuda", dtype, requires_grad=with_gradients):
                    result = info.op(sample.input, *sample.args, **sample.kwargs)
                    if with_gradients:
                        differentiable = [
                            each
                            for each in tensors_of(result)
                            if each.requires_grad and each.dtype.is_floating_point
                        ]
                        if differentiable:
                            sum(each.sum() for each in differentiable).backward()
            except Exception as error:
                yield f"{info.name} {dtype}: {str(error).splitlines()[:1]}"


def run_libraries(chosen: Any) -> Iterator[str]:
    with torch.no_grad():
        for call in chosen(library_calls.calls_without_gradients()):
            try:
                call()
            except Exception as error:
                yield f"library: {str(error).splitlines()[:1]}"
    for call in chosen(library_calls.calls_of_cudnn()):
        try:
            call()
        except Exception as error:
            yield f"cuDNN: {str(error).splitlines()[:1]}"
        if torch.cuda.memory_reserved() > LARGEST_CACHE:
            torch.cuda.empty_cache()


def run_programs(chosen: Any) -> Iterator[str]:
    """Run one step of each program of record_cuda_programs.py. Yield the errors."""
    import record_cuda_programs

    for name in chosen(record_cuda_programs.PROGRAMS):
        if not name.endswith("cuDNN"):
            try:
                record_cuda_programs.PROGRAMS[name]()()
            except Exception as error:
                yield f"{name}: {str(error).splitlines()[:1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="1/1", help="number and count of parts")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--merge", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--subject", choices=SUBJECTS, default="all")
    options = parser.parse_args()
    if options.merge:
        parts = [gpu_records.load(path) for path in options.merge]
        answers = {
            repr((each["operator"], each["arguments"], each["keywords"], each["settings"])): each
            for part in parts
            for each in part["answers"]
        }
        errors = [error for part in parts for error in part["errors"]]
        record = parts[0] | {"answers": list(answers.values()), "errors": errors}
    else:
        part, _, parts = options.part.partition("/")

        end = time.monotonic() + options.seconds

        def chosen(items: Any) -> Any:
            for item in itertools.islice(items, int(part) - 1, None, int(parts)):
                if time.monotonic() > end:
                    errors.append(f"ended before {item}"[:200])
                    break
                yield item

        signature, text = load_plans()
        warnings.simplefilter("ignore")
        warm_up()
        errors: list[str] = []
        with Recorder(signature) as recorder:
            if options.subject in ("grids", "all"):
                errors.extend(run_grids(text, chosen))
            if options.subject in ("database", "all"):
                errors.extend(run_database(chosen))
            if options.subject in ("libraries", "all"):
                errors.extend(run_libraries(chosen))
            if options.subject in ("programs", "all"):
                errors.extend(run_programs(chosen))
        record = gpu_records.versions() | {"answers": recorder.answers, "errors": errors}
    path = options.output or gpu_records.path_of("operators")
    gpu_records.save(record, path)
    print(f"{path}: {len(record['answers'])} calls, {len(record['errors'])} errors")


if __name__ == "__main__":
    main()
