"""What the sanitizer costs: steps of training with it and without, each in a process of its own."""

import launch
from harness import Table, run
from processes import BATCH_SECONDS, Process, calls_of

GOALS = {launch.large_mlp_step: 1.10, launch.tiny_mlp_step: 2.5}


def main() -> None:
    """Print the table."""
    watched, plain = Process("openreg", OPENREG_SANITIZER="1"), Process("openreg")
    table = Table("Sanitizer: time with it / time without, one thread", "step", "ns a batch")
    for step, goal in GOALS.items():
        calls = calls_of(plain, step.__name__)
        watched.tell(step.__name__)
        table.measure(
            step.__name__.replace("_", " "),
            lambda: watched.tell(calls),  # noqa: B023
            lambda: plain.tell(calls),  # noqa: B023
            turns=41,
            seconds=BATCH_SECONDS,
            at_most=goal,
        )


if __name__ == "__main__":
    run(main)
