#!/usr/bin/env python3
"""Record the results of a device's random operators, or compare a device with a record.

On a machine with an NVIDIA GPU and PyTorch for CUDA, from the root of the source tree:

    python tools/record_cuda_random.py

writes test/fixtures/random-<GPU>.json.gz. The tests compare openreg with every such file. For each
call, a record has a digest of all bytes, a few elements, and the generator's offset after the call.

``--device cpu`` and ``--device openreg`` do the same with those devices, to try the program without
a GPU. ``--compare FILE`` repeats the calls of a record and prints the differences.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_records import FIXTURES, Record, load, save
from torch import Tensor
from torch.nn import functional

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGRAL = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


class Call(NamedTuple):
    """A random operator: how it is called on an empty tensor, and how its result is compared."""

    draw: Callable[[Tensor], Tensor]
    dtypes: tuple[torch.dtype, ...]
    # None: equal to the last bit. Otherwise a relative or absolute tolerance, because the hardware
    # of the GPU approximates.
    tolerance: float | None = None
    # Elements in a hundred that rounding may change completely: a rejected number is drawn again,
    # or a quotient next to an integer is rounded up.
    strays: int = 0


def ramp(x: Tensor) -> Tensor:
    """Numbers of few digits, the same on every device, laid out as ``x`` is."""
    numbers = (torch.arange(x.numel()) % 17 - 8) / 4
    return torch.empty_like(x).copy_(numbers.reshape(x.shape))


def probabilities(x: Tensor) -> Tensor:
    """Numbers from 0.125 to 0.875, laid out as ``x`` is."""
    numbers = (torch.arange(x.numel()) % 7 + 1) / 8
    return torch.empty_like(x).copy_(numbers.reshape(x.shape))


def with_mask(results: tuple[Tensor, Tensor]) -> Tensor:
    """A result of dropout and its mask as one tensor."""
    result, mask = results
    return torch.stack([result, mask.to(result.dtype)])


CALLS: dict[str, Call] = {
    "uniform_()": Call(lambda x: x.uniform_(), FLOATING),
    "uniform_(-1.5, 3)": Call(lambda x: x.uniform_(-1.5, 3), FLOATING),
    "normal_()": Call(lambda x: x.normal_(), FLOATING, 2e-6),
    "normal_(3, 0.5)": Call(lambda x: x.normal_(3, 0.5), FLOATING, 2e-6),
    "log_normal_()": Call(lambda x: x.log_normal_(), FLOATING, 2e-5),
    "cauchy_()": Call(lambda x: x.cauchy_(), FLOATING, 1e-3, strays=2),
    "exponential_(2)": Call(lambda x: x.exponential_(2), FLOATING, 2e-6),
    "geometric_(0.3)": Call(lambda x: x.geometric_(0.3), FLOATING + INTEGRAL[:5], 0.0, strays=2),
    "bernoulli_(0.3)": Call(lambda x: x.bernoulli_(0.3), FLOATING + INTEGRAL),
    "bernoulli_(tensor)": Call(
        lambda x: x.bernoulli_(probabilities(x.float())), FLOATING + INTEGRAL
    ),
    "random_()": Call(lambda x: x.random_(), FLOATING + INTEGRAL),
    "random_(100)": Call(lambda x: x.random_(100), FLOATING + INTEGRAL[:5]),
    "random_(-7, 2**28)": Call(lambda x: x.random_(-7, 2**28), (torch.int64, torch.int32)),
    "random_(-2**40, 2**62)": Call(lambda x: x.random_(-(2**40), 2**62), (torch.int64,)),
    "random_(-2**63, None)": Call(
        lambda x: x.random_(-(2**63), None), (torch.int64, torch.float32, torch.float64)
    ),
    "native_dropout(0.3)": Call(
        lambda x: with_mask(torch.native_dropout(ramp(x), 0.3, True)), FLOATING
    ),
    "dropout_(0.3)": Call(
        lambda x: functional.dropout(ramp(x), 0.3, training=True, inplace=True), FLOATING
    ),
    "alpha_dropout(0.3)": Call(
        lambda x: functional.alpha_dropout(ramp(x), 0.3, training=True), FLOATING, 2e-6
    ),
    "feature_dropout(0.3)": Call(
        lambda x: torch.feature_dropout(ramp(x).reshape(-1, 1, 1, 1), 0.3, True), FLOATING
    ),
    "rrelu": Call(lambda x: functional.rrelu(ramp(x), 0.1, 0.3, training=True), FLOATING),
    "poisson(small)": Call(lambda x: torch.poisson(probabilities(x) * 20), FLOATING, 0.0, 2),
    "poisson(large)": Call(lambda x: torch.poisson(probabilities(x) * 4000), FLOATING, 0.0, 5),
    "_standard_gamma": Call(
        lambda x: torch._standard_gamma(probabilities(x) * 4), FLOATING, 1e-5, strays=5
    ),
    "binomial": Call(
        lambda x: torch.binomial(torch.full_like(x, 40), probabilities(x)), FLOATING, 0.0, 5
    ),
    "multinomial(1)": Call(lambda x: torch.multinomial(probabilities(x), 1), FLOATING[:1]),
    "multinomial(100, True)": Call(
        # The running sums of a row are added in another order, and so rounded otherwise.
        lambda x: torch.multinomial(probabilities(x), 100, replacement=True),
        FLOATING[:1],
        0.0,
        strays=25,
    ),
    "randperm": Call(lambda x: torch.randperm(x.numel(), device=x.device), (torch.int64,)),
    "complex randn": Call(
        lambda x: torch.view_as_real(torch.randn(x.shape, dtype=torch.complex64, device=x.device)),
        FLOATING[:1],
        2e-6,
    ),
}

MULTINOMIAL_MOST = 1 << 20  # its running sums are of float32
STRIDED_LEAST = 12


def grid_of(device: str) -> dict[str, Any]:
    """The name of a device and the numbers that decide its layout."""
    if device == "cpu":  # a small GPU's, for something to work with
        return {"name": "cpu", "multiprocessors": 2, "threads": 1024}
    properties = getattr(torch, device).get_device_properties(0)
    return {
        "name": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "threads": properties.max_threads_per_multi_processor,
    }


def sizes_of(grid: dict[str, Any], largest: int) -> list[int]:
    """Numbers of elements: the smallest, and those round each boundary of the layout."""
    wave = grid["multiprocessors"] * grid["threads"] // 256 * 256
    boundaries = [1, 4, 16, 256, wave, 2 * wave, 4 * wave, 8 * wave, 30083, 1 << 20]
    around = {boundary + step for boundary in boundaries for step in (-1, 0, 1)}
    return sorted(n for n in around | {1 << 24} if 0 < n <= largest)


def layouts_of(n: int) -> Iterator[tuple[list[int], list[int]]]:
    """Sizes and strides of tensors of n elements: contiguous, transposed, with gaps."""
    yield [n], [1]
    if n >= STRIDED_LEAST and n % 4 == 0 and n <= 1 << 20:
        yield [4, n // 4], [1, 4]
        yield [n // 4, 4], [9, 2]


def cases(grid: dict[str, Any], largest: int) -> Iterator[Record]:
    """All calls to be made."""
    for name, call in CALLS.items():
        for dtype in call.dtypes:
            # The largest tensors for one type: the layout is that of smaller ones.
            most = largest if dtype is call.dtypes[0] else min(largest, 1 << 20)
            if name.startswith("multinomial"):
                most = min(most, MULTINOMIAL_MOST)
            for n in sizes_of(grid, most):
                for sizes, strides in layouts_of(n):
                    for seed in (0, (1 << 40) + 7):
                        yield {
                            "call": name,
                            "dtype": str(dtype).removeprefix("torch."),
                            "sizes": sizes,
                            "strides": strides,
                            "seed": seed,
                        }


def offset_of(device: str) -> int | None:
    """Where the device's generator stands; the CPU's has no offset."""
    return None if device == "cpu" else getattr(torch, device).default_generators[0].get_offset()


def sampled(n: int) -> list[int]:
    """Up to 24 elements: both ends and some in between."""
    return sorted(
        {min(n - 1, i) for i in range(4)} | {n - 1 - i * (n - 1) // 19 for i in range(20)}
    )


def answer(case: Record, device: str) -> Record | str:
    """Make a call; a sentence where the device refuses it."""
    dtype = getattr(torch, case["dtype"])
    torch.manual_seed(case["seed"])
    if case["seed"]:
        torch.rand(3, device=device)  # not to start at offset 0 always
    places = 1 + sum((n - 1) * step for n, step in zip(case["sizes"], case["strides"], strict=True))
    base = torch.zeros(places, dtype=dtype, device=device)
    x = base.as_strided(case["sizes"], case["strides"])
    try:
        drawn = CALLS[case["call"]].draw(x)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    elements = drawn.detach().cpu().contiguous().flatten()
    values = elements[sampled(elements.numel())]
    return {
        "n": elements.numel(),
        "digest": hashlib.sha256(elements.view(torch.uint8).numpy().tobytes()).hexdigest()[:16],
        "values": (values.double() if dtype.is_floating_point else values).tolist(),
        "offset": offset_of(device),
    }


def record(device: str, largest: int) -> Record:
    """All answers of a device, and what it is."""
    grid = grid_of(device)
    answers, refused = [], {}
    for case in cases(grid, largest):
        got = answer(case, device)
        if isinstance(got, str):
            refused[f"{case['call']} of {case['dtype']}"] = got
        else:
            answers.append(case | got)
    return {
        "device": device,
        **grid,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device == "cuda" else None,
        "refused": refused,
        "answers": answers,
    }


def differs(call: Call, dtype: str, expected: Record, got: Record) -> bool:
    """Whether two answers to one call are not the same, as closely as such calls can agree."""
    if (expected["n"], expected["offset"]) != (got["n"], got["offset"]):
        return True
    if call.tolerance is None:
        return expected["digest"] != got["digest"]
    unit = torch.finfo(getattr(torch, dtype)).eps if "float" in dtype else 0.0
    allowed = max(call.tolerance, unit)
    strays = sum(
        not (a == b or abs(a - b) <= allowed * max(1.0, abs(a)))
        for a, b in zip(expected["values"], got["values"], strict=True)
    )
    return strays > -(-call.strays * len(expected["values"]) // 100)


def differences(recorded: Record, device: str) -> Iterator[Record]:
    """Cases of a record that the device answers otherwise."""
    for expected in recorded["answers"]:
        got = answer(expected, device)
        if isinstance(got, str):
            yield expected | {"got": got}
            continue
        if recorded["device"] == "cpu" or device == "cpu":
            got["offset"] = expected["offset"]
        if differs(CALLS[expected["call"]], expected["dtype"], expected, got):
            yield expected | {"got": got}


def main(arguments: list[str] | None = None) -> int:
    """Record or compare; the exit status tells whether anything differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "openreg", "cpu"), default="cuda")
    parser.add_argument("--largest", type=int, default=1 << 24, help="elements of a tensor")
    parser.add_argument("--output", type=Path, help="default: test/fixtures/random-<name>.json.gz")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a record to compare with")
    options = parser.parse_args(arguments)
    if options.compare:
        different = list(differences(load(options.compare), options.device))
        for case in different:
            print(json.dumps(case))
        print(f"{options.compare.name}: {len(different)} answers differ")
        return 1 if different else 0
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here: see --device")
    recorded = record(options.device, options.largest)
    name = recorded["name"].lower().replace(" ", "-")
    path = options.output or FIXTURES / f"random-{name}.json.gz"
    save(recorded, path)
    for call, sentence in recorded["refused"].items():
        print(f"refused: {call}: {sentence}")
    print(f"{path}: {len(recorded['answers'])} answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
