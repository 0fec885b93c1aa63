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
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_records
import torch
from described_results import describe, differences, tensors_of
from edge_calls import DEVICE, EDGE_CASES, FLOATING, SKIPPED, Call, Calls
from torch import Tensor

SAMPLES = 8  # of each operator and dtype
GROUP = 8  # operators in a process
DTYPES = (*FLOATING, torch.complex64, torch.int64, torch.int32, torch.uint8, torch.bool)


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
