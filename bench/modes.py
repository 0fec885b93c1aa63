"""The cost of launches in CUDA mode, compared with openreg mode.

Each mode runs in its own process (processes.py). The processes prepare the same work and take turns
calling it.
"""

import launch
from harness import Table, run
from processes import BATCH_SECONDS, Process, calls_of

SIZES = (1, 64, 4096, 1 << 20)
STEPS = (launch.mlp_step, launch.convolutional_step)


def main() -> None:
    """Print the table."""
    cuda, openreg = Process("cuda", OPENREG_DEVICE_TYPE="cuda"), Process("openreg")
    table = Table(
        "Modes: time in CUDA mode / time in openreg mode, one thread", "work", "ns a batch"
    )
    names = [f"{operator} {size}" for operator in launch.OPERATORS for size in SIZES]
    for name in [*names, *(step.__name__ for step in STEPS)]:
        calls = calls_of(openreg, name)
        cuda.tell(name)
        table.measure(
            name.replace("_step", " step"),
            lambda: cuda.tell(calls),  # noqa: B023
            lambda: openreg.tell(calls),  # noqa: B023
            turns=41,
            seconds=BATCH_SECONDS,
            at_most=1.02,
        )


if __name__ == "__main__":
    run(main)
