"""Training steps compiled by `torch.compile`, on a device and on the CPU.

Inductor compiles both. With "reduce-overhead" the model is replayed, but not the optimizer. Most
of a small step is spent where a replay saves nothing: guards, AOTAutograd and the engine.
`overhead` measures that part on the CPU.
"""

import statistics
import time
import unittest.mock
from collections.abc import Callable

import torch
from harness import Table, Work, one_thread, run
from programs import batch, convolutions, mlp, tiny_mlp
from torch import nn
from torch._inductor.output_code import CompiledFxGraph

SMALL, LARGE, REPLAYED = 1.05, 1.00, 0.5

Make = Callable[..., Work]


def step_of(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, mode: str | None = None
) -> Work:
    """Return a compiled training step of a classifier: forward, backward and SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    update = torch.compile(optimizer.step)

    @torch.compile(mode=mode)
    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(inputs), targets)

    def step() -> None:
        loss_of(inputs, targets).backward()
        update()
        optimizer.zero_grad()

    return step


def small_mlp(device: str, mode: str | None = None) -> Work:
    """Return a step of the MLP 8-16-4, batch 4."""
    return step_of(tiny_mlp().to(device), *batch(device, 4, 8, classes=4), mode)


def large_mlp(device: str, mode: str | None = None) -> Work:
    """Return a step of the MLP 256-1024-1024-10, batch 64."""
    return step_of(mlp().to(device), *batch(device, 64, 256), mode)


class _Transformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(inputs).mean(1))


def small_transformer(device: str, mode: str | None = None) -> Work:
    """Return a step of a transformer layer of width 32, batch 2 of length 8."""
    torch.manual_seed(0)
    return step_of(_Transformer(32).to(device), *batch(device, 2, 8, 32), mode)


def large_transformer(device: str, mode: str | None = None) -> Work:
    """Return a step of a transformer layer of width 256, batch 8 of length 64."""
    torch.manual_seed(0)
    return step_of(_Transformer(256).to(device), *batch(device, 8, 64, 256), mode)


def small_convolutions(device: str, mode: str | None = None) -> Work:
    """Return a step of two convolutions, batch 1 of 3x8x8."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 10)
    )
    return step_of(model.to(device), *batch(device, 1, 3, 8, 8), mode)


def large_convolutions(device: str, mode: str | None = None) -> Work:
    """Return a step of two convolutions with pooling, batch 32 of 3x32x32."""
    return step_of(convolutions().to(device), *batch(device, 32, 3, 32, 32), mode)


def overhead(make: Make) -> float:
    """Return the fraction of a CPU step that is spent outside the code that Inductor generated."""
    step, within = make("cpu"), 0.0
    call = CompiledFxGraph.__call__

    def timed(self: CompiledFxGraph, inputs: object) -> object:
        nonlocal within
        start = time.perf_counter()
        try:
            return call(self, inputs)
        finally:
            within += time.perf_counter() - start

    with unittest.mock.patch.object(CompiledFxGraph, "__call__", timed):
        parts = []
        for _ in range(200):
            within, start = 0.0, time.perf_counter()
            step()
            parts.append(1 - within / (time.perf_counter() - start))
    return statistics.median(parts)


def main() -> None:
    """Print the table."""
    one_thread()
    table = Table("Compiled: time on openreg / time on the CPU, one thread", "step")
    for make, goal in (
        (small_mlp, SMALL),
        (small_transformer, SMALL),
        (small_convolutions, SMALL),
        (large_mlp, LARGE),
        (large_transformer, LARGE),
        (large_convolutions, LARGE),
    ):
        name = make.__name__.replace("_", " ")
        torch._dynamo.reset()
        of_cpu = make("cpu")
        table.measure(name, make("openreg"), of_cpu, seconds=0.05, at_most=goal)
        if goal == SMALL:
            table.measure(
                f"{name}, reduce-overhead",
                make("openreg", "reduce-overhead"),
                of_cpu,
                seconds=0.05,
                at_most=REPLAYED,
            )
        if goal == SMALL:
            print(f"fraction of the CPU step outside generated code: {overhead(make):.2f}")


if __name__ == "__main__":
    run(main)
