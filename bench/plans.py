"""The cost of memory plans: calls with plans, whose signatures are known, and without."""

import torch
from harness import Table, Work, one_thread, run
from programs import batch, mlp, tiny_mlp, training_step
from torch_openreg.plans import launches

CALLS = 50  # in a row, so that switching plans on or off costs nothing


def _operators() -> dict[str, Work]:
    x = torch.rand(64, 64, device="openreg")
    large = torch.rand(1024, 1024, device="openreg")
    weight = torch.rand(64, device="openreg")
    return {
        "add of 64 x 64": lambda: x + x,
        "product of 64 x 64": lambda: x @ x,
        "softmax of 64 x 64": lambda: x.softmax(-1),
        "layer norm of 64 x 64": lambda: torch.layer_norm(x, (64,), weight),
        "sort of 64 x 64": lambda: x.sort(),
        "sum of 1024 x 1024": lambda: large.sum(),
    }


def _steps() -> dict[str, Work]:
    return {
        "training step, MLP 8-16-4": training_step(
            tiny_mlp().to("openreg"), *batch("openreg", 4, 8, classes=4)
        ),
        "training step, MLP 256-1024-1024-10": training_step(
            mlp().to("openreg"), *batch("openreg", 64, 256)
        ),
    }


def _repeated(work: Work, calls: int, with_plans: bool) -> Work:
    def repeat() -> None:
        launches.use("planner" if with_plans else "none")
        for _ in range(calls):
            work()

    return repeat


def main() -> None:
    """Print the table."""
    one_thread()
    table = Table("Memory plans: time with plans / time without", "work", unit="50 calls, ns")
    for works, calls in ((_operators(), CALLS), (_steps(), 5)):
        for name, work in works.items():
            table.measure(
                name,
                _repeated(work, calls, with_plans=True),
                _repeated(work, calls, with_plans=False),
                seconds=0.05,
                at_most=1.03,
            )
    launches.use("none")


if __name__ == "__main__":
    run(main)
