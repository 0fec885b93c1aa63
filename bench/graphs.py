"""Replays of captured training steps, compared with the same steps on the CPU.

Both sides use one thread. The CPU's step runs eagerly, with the optimizer's for-loop
implementation.
"""

from collections.abc import Callable

import torch
from harness import Table, Work, one_thread, run
from torch import nn

DEVICE = "openreg"


class Lstm(nn.Module):
    """An LSTM 16-32 over 8 steps, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return 4 numbers for each time step."""
        return self.head(self.lstm(x)[0])


def mlp(first: int, second: int, third: int) -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(first, second), nn.ReLU(), nn.Linear(second, third))


def transformer() -> nn.Module:
    """A layer of width 32 with 4 heads."""
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


def convolution() -> nn.Module:
    """A convolution of 4 channels over 8x8, and a linear layer."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))


# The step, its model, the shape of a batch, and the minimum ratio of CPU eager to replay.
STEPS: list[tuple[str, Callable[[], nn.Module], tuple[int, ...], float]] = [
    ("MLP 8-16-4, batch 4", lambda: mlp(8, 16, 4), (4, 8), 10),
    ("transformer layer, width 32", transformer, (2, 8, 32), 5),
    ("small convolution", convolution, (4, 3, 8, 8), 3.5),
    ("LSTM, small", Lstm, (8, 4, 16), 4),
    ("MLP 256-512, batch 64", lambda: mlp(256, 512, 256), (64, 256), 1.1),
]


def step(model: nn.Module, shape: tuple[int, ...], device: str) -> Work:
    """Return a training step with SGD whose inputs keep their addresses."""
    torch.manual_seed(0)
    x = torch.randn(shape).to(device)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def work() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return work


def captured(work: Work) -> torch.openreg.CUDAGraph:
    """Capture the work and return its graph."""
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        work()
    return graph


def warmed_up(work: Work) -> Work:
    """Run the work on a side stream, as PyTorch recommends before a capture, and return it."""
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        for _ in range(3):
            work()
    torch.openreg.synchronize()
    return work


def main() -> None:
    """Print the tables."""
    one_thread()
    replays = Table("Graphs: time of a step on CPU eager / time of a replay, one thread", "step")
    captures = Table("Graphs: time of a capture / time of the eager step on openreg", "step")
    for name, make, shape, at_least in STEPS:
        eager = step(make(), shape, "cpu")
        on_device = warmed_up(step(make(), shape, DEVICE))
        graph = captured(on_device)
        replays.measure(name, graph.replay, eager, turns=41, at_least=at_least)
        other = warmed_up(step(make(), shape, DEVICE))
        captures.measure(name, lambda: captured(other), other, turns=15, at_most=3)  # noqa: B023


if __name__ == "__main__":
    run(main)
