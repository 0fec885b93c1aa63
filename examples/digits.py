"""Images of handwritten digits and a network that classifies them, for the training examples."""

import torch
from sklearn.datasets import load_digits
from torch import nn

BATCH = 64


def load_images(seed):
    """Return training images and labels, then test images and labels, split 4 to 1 at random."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16  # pixels are 0 to 16
    labels = torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    training, test = order.tensor_split([len(order) * 4 // 5])
    return images[training], labels[training], images[test], labels[test]


def make_network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def batches(count, epochs, seed):
    """Yield the indices of each full batch, in an order that depends only on the seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        yield from torch.randperm(count, generator=generator)[: count - count % BATCH].split(BATCH)
