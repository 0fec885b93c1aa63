"""The cost of profiling: profiled training steps, compared with the same on the CPU."""

import torch
from harness import Table, Work, one_thread, run
from programs import batch, convolutions, mlp, tiny_mlp, training_step
from torch.profiler import ProfilerActivity, profile

STEPS = 10


def _steps(step: Work, activities: list[ProfilerActivity]) -> Work:
    """Return work that runs several steps in one profile, including the end of the profile."""

    def work() -> None:
        with profile(activities=activities):
            for _ in range(STEPS):
                step()

    return work


def _mlp(device: str) -> Work:
    return training_step(mlp().to(device), *batch(device, 64, 256))


def _tiny(device: str) -> Work:
    return training_step(tiny_mlp().to(device), *batch(device, 4, 8, classes=4))


def _convolutions(device: str) -> Work:
    return training_step(convolutions().to(device), *batch(device, 32, 3, 32, 32))


def main() -> None:
    """Print the table."""
    one_thread()
    host, both = [ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    table = Table(f"Profiler: {STEPS} steps in a profile, openreg / CPU, one thread", "step")
    for name, make in ("tiny mlp", _tiny), ("mlp", _mlp), ("convolutions", _convolutions):
        table.measure(
            name,
            _steps(make("openreg"), both),
            _steps(make("cpu"), host),
            turns=15,
            seconds=0.2,
            at_most=1.5,
        )
    table = Table("Profiler: steps after a profile, openreg / CPU, one thread", "step")
    for name, make, goal in ("mlp", _mlp, 1.03), ("convolutions", _convolutions, 1.05):
        step = make("openreg")
        _steps(step, both)()
        table.measure(name, step, make("cpu"), seconds=0.05, at_most=goal)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(main)
