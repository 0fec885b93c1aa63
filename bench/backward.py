"""The cost of running backward on another thread, for small training steps.

Compares training steps on openreg with the same steps on the CPU, by default and with
OPENREG_AUTOGRAD_THREADS=1. Each runs in its own process, and the processes take turns.
"""

import launch
from harness import Table, run
from processes import BATCH_SECONDS, Process, calls_of

STEPS = (
    launch.tiny_mlp_step,
    launch.small_transformer_step,
    launch.mlp_step,
    launch.convolutional_step,
)
GOAL = 1.05


def main() -> None:
    """Print the table."""
    cpu, usual = Process("cpu"), Process("openreg")
    threads = Process("openreg", OPENREG_AUTOGRAD_THREADS="1")
    table = Table("Backward: time on openreg / time of CPU eager, one thread", "step", "ns a batch")
    for step in STEPS:
        calls = calls_of(cpu, step.__name__)
        for process, thread, at_most in ((usual, "calling", GOAL), (threads, "device's", None)):
            process.tell(step.__name__)
            table.measure(
                f"{step.__name__.replace('_', ' ')}, {thread} thread",
                lambda: process.tell(calls),  # noqa: B023
                lambda: cpu.tell(calls),  # noqa: B023
                turns=41,
                seconds=BATCH_SECONDS,
                at_most=at_most,
            )


if __name__ == "__main__":
    run(main)
