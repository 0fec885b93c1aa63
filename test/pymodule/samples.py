"""Inputs for operators: made on the CPU with a fixed seed, then moved to where they are wanted.

Tests describe an operator as a function of `Samples`, so that the same description runs on the CPU
and on a device, and the results can be compared.
"""

from types import SimpleNamespace

import torch


def make(device="cpu"):
    """Return the inputs on a device; the names describe them."""
    g = torch.Generator().manual_seed(2024)
    host = {
        "x": torch.randn(4, 5, generator=g),
        "y": torch.randn(4, 5, generator=g),
        "z": torch.randn(4, 5, generator=g),
        "row": torch.randn(5, generator=g),
        "column": torch.randn(4, 1, generator=g),
        "w": torch.randn(5, 3, generator=g),
        "bias": torch.randn(3, generator=g),
        "p": torch.rand(4, 5, generator=g) * 0.8 + 0.1,
        "square": torch.randn(5, 5, generator=g) + 5 * torch.eye(5),
        "batch": torch.randn(3, 4, 5, generator=g),
        "batch2": torch.randn(3, 5, 2, generator=g),
        "i": torch.randint(-9, 9, (4, 5), generator=g),
        "j": torch.randint(1, 6, (4, 5), generator=g),
        "b": torch.rand(4, 5, generator=g) < 0.5,
        "index": torch.tensor([2, 0, 3]),
        "places": torch.randint(0, 4, (4, 5), generator=g),
        "labels": torch.tensor([1, 0, 4, 2]),
        "c": torch.randn(4, 5, dtype=torch.complex64, generator=g),
        "signal": torch.randn(2, 3, 12, generator=g),
        "image": torch.randn(2, 4, 8, 8, generator=g),
        "volume": torch.randn(1, 2, 4, 4, 4, generator=g),
        "kernel1": torch.randn(6, 3, 3, generator=g),
        "kernel2": torch.randn(6, 4, 3, 3, generator=g),
        "kernel3": torch.randn(3, 2, 2, 2, 2, generator=g),
        "tokens": torch.tensor([[0, 3, 1], [2, 2, 4]]),
        "table": torch.randn(5, 3, generator=g),
        "grid": torch.rand(2, 6, 6, 2, generator=g) * 2 - 1,
        "heads": torch.randn(2, 2, 6, 4, generator=g),
    }
    return SimpleNamespace(device=device, **{name: t.to(device) for name, t in host.items()})


def to_cpu(result):
    """Bring the tensors of a result to the CPU, whatever holds them."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), result)


def tensors(result):
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
