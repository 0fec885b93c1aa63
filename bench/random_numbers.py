"""The cost of random numbers: 16 M float32, compared with the CPU's own operators, one thread.

In-place operators write to existing tensors. Dropout and permutations allocate their results.
(The file is not called random.py, which would hide Python's module for the other files here.)
"""

from collections.abc import Callable
from functools import partial

import torch
from harness import Table, Work, one_thread, run
from torch import Tensor, nn

ELEMENTS = 1 << 24

IN_PLACE: dict[str, tuple[Callable[[Tensor], object], float]] = {
    "uniform_": (Tensor.uniform_, 4.5),
    "bernoulli_(0.5)": (lambda x: x.bernoulli_(0.5), 15),
    "normal_": (Tensor.normal_, 4),
    "exponential_": (Tensor.exponential_, 15),
    "random_": (Tensor.random_, 4),
}
WITH_A_RESULT: dict[str, tuple[Callable[[Tensor], object], float]] = {
    "dropout, p=0.5": (lambda x: nn.functional.dropout(x, 0.5), 3),
    "randperm": (lambda x: torch.randperm(ELEMENTS, device=x.device), 1),
}


def against_the_cpu() -> None:
    """Print the table of operators."""
    one_thread()
    table = Table(f"{ELEMENTS >> 20} M float32: rate / rate on the CPU, one thread", "operator")
    host = torch.zeros(ELEMENTS)
    device = host.to("openreg")
    for name, (draw, goal) in (IN_PLACE | WITH_A_RESULT).items():
        table.measure(
            name, partial(draw, device), partial(draw, host), turns=9, seconds=0.05, at_least=goal
        )


def with_threads(count: int, work: Work) -> None:
    """Run the work with `count` threads."""
    torch.set_num_threads(count)
    work()


def two_threads_against_one() -> None:
    """Print the table of threads."""
    table = Table(f"{ELEMENTS >> 20} M float32: rate of two threads / rate of one", "operator")
    device = torch.zeros(ELEMENTS, device="openreg")
    for name, (draw, _) in IN_PLACE.items():
        one, two = (partial(with_threads, count, partial(draw, device)) for count in (1, 2))
        table.measure(name, two, one, turns=15, seconds=0.05, at_least=1.9)


def main() -> None:
    """Print the tables."""
    against_the_cpu()
    two_threads_against_one()


if __name__ == "__main__":
    run(main)
