"""The cost of the sanitizer: training steps with and without it, and its shadow memory.

Each configuration runs in its own process, and the processes take turns. In one of them the
sanitizer was enabled and is disabled again. All processes use one CPU. With two, half of a tiny
step is the time to wake the autograd thread's CPU, which varies from minute to minute.
"""

import os

import launch
import torch
from harness import Table, absolute, one_thread, run
from processes import BATCH_SECONDS, DISABLED, Process, calls_of
from programs import training_step, transformer
from torch_openreg import sanitizer

GOALS = {launch.large_mlp_step: 1.10, launch.tiny_mlp_step: 2.5}
STEPS = 5


def times() -> None:
    """Print the rows about time."""
    plain, watched = Process("openreg"), Process("openreg", OPENREG_SANITIZER="1")
    disabled = Process("openreg", OPENREG_SANITIZER="1")
    disabled.tell(DISABLED)
    table = Table(
        "Sanitizer: time with the sanitizer / time without, one thread", "step", "ns a batch"
    )
    for step, goal in GOALS.items():
        name = step.__name__.replace("_", " ")
        calls = calls_of(plain, step.__name__)
        for process, state, at_most in ((watched, "", goal), (disabled, ", disabled", 1.05)):
            process.tell(step.__name__)
            table.measure(
                name + state,
                lambda: process.tell(calls),  # noqa: B023
                lambda: plain.tell(calls),  # noqa: B023
                turns=41,
                seconds=BATCH_SECONDS,
                at_most=at_most,
            )


def shadow() -> None:
    """Print the row about memory."""
    torch.openreg.reset_peak_memory_stats()
    sanitizer.enable(report=None)
    model = transformer().to("openreg")
    tokens = torch.randint(0, 1000, (8, 128), device="openreg")
    step = training_step(model, tokens, tokens, torch.optim.AdamW(model.parameters()))
    for _ in range(STEPS):
        step()
    counted = sanitizer.counts()
    assert counted["accesses"] > 0
    in_use = torch.openreg.max_memory_allocated()
    sanitizer.disable()
    table = Table(
        "Sanitizer: bytes of shadow memory / peak bytes allocated on the device", "step", "bytes"
    )
    table.row("transformer step", absolute(counted["shadow_bytes"], in_use), at_most=0.05)


def main() -> None:
    """Print the tables."""
    one_thread()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    times()
    shadow()


if __name__ == "__main__":
    run(main)
