"""The cost of launches: operators, factories and training steps, compared with CPU eager."""

from collections.abc import Callable

import torch
from harness import Table, Work, one_thread, run
from programs import batch, convolutions, mlp, small_transformer, tiny_mlp, training_step

OPERATORS: dict[str, Callable[[str, int], Work]] = {}


def operator(make: Callable[[str, int], Work]) -> Callable[[str, int], Work]:
    """Register an operator: a function of device and size that returns the work."""
    OPERATORS[make.__name__] = make
    return make


def _operand(device: str, size: int) -> torch.Tensor:
    return torch.linspace(-1, 1, size).to(device)


@operator
def add(device: str, size: int) -> Work:
    """``a + b``."""
    a, b = _operand(device, size), _operand(device, size)
    return lambda: a + b


@operator
def relu(device: str, size: int) -> Work:
    """``relu(a)``."""
    a = _operand(device, size)
    return lambda: torch.relu(a)


@operator
def mul(device: str, size: int) -> Work:
    """``a.mul(b)``."""
    a, b = _operand(device, size), _operand(device, size)
    return lambda: a.mul(b)


@operator
def add_(device: str, size: int) -> Work:
    """``a.add_(b)``."""
    a, b = _operand(device, size), _operand(device, size)
    return lambda: a.add_(b)


def mlp_step(device: str) -> Work:
    """Forward, backward and SGD of an MLP 256-1024-1024-10, batch 64."""
    return training_step(mlp().to(device), *batch(device, 64, 256))


def large_mlp_step(device: str) -> Work:
    """`mlp_step` with batch 256."""
    return training_step(mlp().to(device), *batch(device, 256, 256))


def tiny_mlp_step(device: str) -> Work:
    """Forward, backward and SGD of an MLP 8-16-4, batch 4."""
    return training_step(tiny_mlp().to(device), *batch(device, 4, 8, classes=4))


def small_transformer_step(device: str) -> Work:
    """Forward, backward and AdamW of one transformer layer, batch 4 of 16 positions."""
    model = small_transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    return training_step(model, *batch(device, 4, 16, 64, classes=4), optimizer)


def convolutional_step(device: str) -> Work:
    """Forward, backward and SGD of two convolutions with pooling, batch 32 of 3x32x32."""
    return training_step(convolutions().to(device), *batch(device, 32, 3, 32, 32))


def main() -> None:
    """Print the table."""
    one_thread()
    table = Table("Launch: time on openreg / time of CPU eager, one thread", "work")
    for name, make in OPERATORS.items():
        for size in (1, 64, 4096):
            table.measure(f"{name}, {size}", make("openreg", size), make("cpu", size), at_most=1.10)
    # At 16 MiB glibc may unmap a freed result. Then CPU eager pays for page faults. At 64 MiB it
    # always does.
    for name, make in OPERATORS.items():
        for millions, goal in ((4, None if name == "add_" else 0.88), (16, None)):
            size = millions << 20
            table.measure(
                f"{name}, {millions} M",
                make("openreg", size),
                make("cpu", size),
                turns=15,
                seconds=0.05,
                at_most=goal,
            )
    table.measure(
        "torch.empty(64)",
        lambda: torch.empty(64, device="openreg"),
        lambda: torch.empty(64, device="cpu"),
        at_most=1.30,
    )
    for make_step, goal in ((mlp_step, 1.03), (convolutional_step, 1.05)):
        name = make_step.__name__.replace("_", " ")
        table.measure(name, make_step("openreg"), make_step("cpu"), seconds=0.05, at_most=goal)


if __name__ == "__main__":
    run(main)
