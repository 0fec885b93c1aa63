"""Models and training steps that several benchmarks use."""

import torch
from harness import Work
from torch import nn


def mlp() -> nn.Module:
    """Return an MLP 256-1024-1024-10 with the same weights at each call."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def tiny_mlp() -> nn.Module:
    """Return an MLP 8-16-4 with the same weights at each call. Launches dominate its time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def convolutions() -> nn.Module:
    """Return two convolutions with pooling for 3x32x32, with the same weights at each call."""
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


class _LanguageModel(nn.Module):
    def __init__(self, layers: int, size: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, 4, 4 * size, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(size, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden).transpose(1, 2)


def small_transformer() -> nn.Module:
    """Return one layer with dropout and a classifier for 16 positions, with the same weights."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(16 * 64, 4))


def transformer() -> nn.Module:
    """Return a transformer: 4 layers, width 256, 1000 words, the same weights at each call."""
    torch.manual_seed(0)
    return _LanguageModel(layers=4, size=256, words=1000)


def batch(
    device: torch.device | str, *shape: int, classes: int = 10
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets for a classifier."""
    return torch.randn(shape).to(device), torch.randint(0, classes, shape[:1]).to(device)


def training_step(
    model: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    optimizer: torch.optim.Optimizer | None = None,
) -> Work:
    """Return a training step of a classifier: forward, backward and optimizer, SGD by default."""
    loss_function = nn.CrossEntropyLoss()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss_function(model(inputs), targets).backward()
        optimizer.step()

    return step
