#!/usr/bin/env python3
"""Record the errors and warnings that PyTorch reports on a GPU.

On a machine with an NVIDIA GPU and PyTorch for CUDA, from the root of the source tree:

    python tools/record_cuda_errors.py

writes test/fixtures/errors-<GPU>.json.gz: the lines that each program of cuda_error_programs.txt
prints, which runs in a process of its own, and the errors of PyTorch's operator database.
``--only NAME`` runs one program and prints its lines, also under ``openreg run``.
"""

import argparse
import concurrent.futures
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import gpu_records

# Begins each program. `attempt` prints what a call returns or raises.
PREAMBLE = """
import os, sys, warnings
import torch
from torch import nn
F = nn.functional

def attempt(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
            plain = isinstance(result, (int, float, str, bool, tuple))
            print("returns", repr(result) if plain else type(result).__name__)
        except BaseException as error:
            print(type(error).__name__ + ": " + str(error))
    for each in caught:
        print(each.category.__name__ + ": " + str(each.message))

def here(*sizes, **options):
    return torch.zeros(sizes, device="cuda", **options)

here(1).cpu()  # the device is in use before a program begins
"""

CAPTURE = """
x = here(4)
y = torch.zeros(4)
generator = torch.Generator("cuda")
event = torch.cuda.Event(enable_timing=True)
event.record()
other = torch.cuda.Stream()
torch.cuda.synchronize()
def capture():
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
{}
attempt(capture)
attempt(lambda: torch.cuda.is_current_stream_capturing())
attempt(lambda: (here(3) + 1).sum().item())
def again():
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x + 1
attempt(again)
"""


def read_programs() -> dict[str, str]:
    """Return the programs by name."""
    text = Path(__file__).with_name("cuda_error_programs.txt").read_text()
    programs = {}
    for part in text.split("\n== ")[1:]:
        name, _, code = part.partition("\n")
        is_capture = name.startswith("capture of ")
        programs[name] = CAPTURE.format(textwrap.indent(code, 8 * " ")) if is_capture else code
    return programs


# Prints a JSON object: for each operator of a part of PyTorch's database, the error for each dtype
# that it does not support, and for each of its wrong inputs.
DATABASE = """
import json, sys, warnings
import torch
from torch.testing._internal.common_methods_invocations import op_db
warnings.simplefilter("ignore")
first, count = {first}, {count}
NAMES = "float32 float16 bfloat16 float64 int64 int32 bool uint8 complex64 float8_e4m3fn uint16"
DTYPES = [getattr(torch, name) for name in NAMES.split()]
found = {{}}
def text_of(call):
    try:
        call()
        return None
    except BaseException as error:
        return type(error).__name__ + ": " + str(error).partition("\\n")[0]
for info in op_db[first:first + count]:
    name = info.name + ("." + info.variant_test_name if info.variant_test_name else "")
    supported = info.supported_dtypes("cuda")
    for dtype in DTYPES:
        if dtype in supported:
            continue
        def call():
            torch.manual_seed(0)
            sample = next(iter(info.sample_inputs("cuda", dtype)))
            info.op(sample.input, *sample.args, **sample.kwargs)
            torch.cuda.synchronize()
        found[name + " of " + str(dtype)[6:]] = text_of(call)
    if info.error_inputs_func is None:
        continue
    try:
        for i, wrong in enumerate(info.error_inputs("cuda")):
            sample = wrong.sample_input
            call = lambda: info.op(sample.input, *sample.args, **sample.kwargs)
            found[name + " error " + str(i)] = text_of(call)
    except BaseException as error:
        found[name + " errors"] = type(error).__name__
    if any("device-side" in str(each) for each in found.values()):
        found["stopped"] = name
        break
print(json.dumps(found))
"""
DATABASE_PART = 20


def run_database(first: int) -> dict[str, str | None]:
    """Return the errors of a part of the operator database."""
    code = DATABASE.format(first=first, count=DATABASE_PART)
    try:
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=150
        )
        return json.loads(result.stdout.splitlines()[-1])
    except (IndexError, ValueError, subprocess.TimeoutExpired) as error:
        return {f"part {first}": repr(error)[:200]}


PROGRAMS = read_programs()

# Lines and parts of lines that say where PyTorch was built and what else the GPU does.
LEFT_OUT = re.compile(
    r"(frame #|Exception raised from|CUDA kernel errors might|For debugging consider|Search for "
    r"|Compile with `TORCH_USE_CUDA_DSA`|Device-side assertion)|\s*$"
)
PLACES = re.compile(
    r" \(Triggered internally at [^)]*\)| at \"/[^\"]*\":\d+"
    r"|Process \d+ has [\d.]+ \w+ memory in use\. "
)


def cleaned(lines: list[str]) -> list[str]:
    return [PLACES.sub("", line) for line in lines if not LEFT_OUT.match(line)]


def run(name: str) -> list[str]:
    """Run a program. Return the lines of its output, and of its errors if it was killed."""
    result = subprocess.run(
        [sys.executable, "-c", PREAMBLE + PROGRAMS[name]],
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = result.stdout.splitlines()
    if result.returncode:
        lines += [f"exit status {result.returncode}", *result.stderr.splitlines()[-8:]]
    return cleaned(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PROGRAMS, metavar="NAME")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--jobs", type=int, default=4)
    options = parser.parse_args()
    if options.only:
        print("\n".join(run(options.only)))
        return
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        lines = dict(zip(PROGRAMS, pool.map(run, PROGRAMS), strict=True))
        record = gpu_records.versions() | {"programs": lines}
        path = options.output or gpu_records.path_of("errors")
        gpu_records.save(record, path)
        database: dict[str, str | None] = {}
        for part in pool.map(run_database, range(0, 720, DATABASE_PART)):
            database |= part
    gpu_records.save(record | {"database": database}, path)
    print(f"{path}: {len(lines)} programs, {len(database)} calls of the database")


if __name__ == "__main__":
    main()
