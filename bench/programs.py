"""Models and steps of training that benchmarks have in common."""

import torch
from harness import Work
from torch import nn


def mlp() -> nn.Module:
    """Return the MLP 256-1024-1024-10, the same one each time."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def tiny_mlp() -> nn.Module:
    """Return the MLP 8-16-4, the same one each time: it is all launches."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def convolutions() -> nn.Module:
    """Return two convolutions with pooling, of 3x32x32, the same ones each time."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 10),
    )


def batch(
    device: torch.device | str, *shape: int, classes: int = 10
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs for a classifier, and targets."""
    return torch.randn(shape).to(device), torch.randint(0, classes, shape[:1]).to(device)


def training_step(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Work:
    """Return forward, backward and SGD of a classifier."""
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss_function(model(inputs), targets).backward()
        optimizer.step()

    return step
