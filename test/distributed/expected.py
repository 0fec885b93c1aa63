"""What of PyTorch's tests fails or hangs, and why. Whoever mends one removes its line.

By the name of the test: with which backends, on how many ranks at least, and the reason.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    reason: str
    backends: tuple = ("gloo", "nccl", "occl")
    modes: tuple = ("cuda", "openreg")


NEEDS_NCCL = Expected(
    'makes a group with the backend "nccl", by its name', modes=("openreg",), backends=("gloo",)
)

EXPECTED = {
    "test_average_parameters": [NEEDS_NCCL],
    "test_monitored_barrier_allreduce_hang": [NEEDS_NCCL],
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": [NEEDS_NCCL],
}


def expected(device_type, backend):
    """Return the reasons by the names of tests."""
    return {
        name: entry.reason
        for name, entries in EXPECTED.items()
        for entry in entries
        if backend in entry.backends and device_type in entry.modes
    }
