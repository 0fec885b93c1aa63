"""Operators of float16 on a device, compared with the CPU's in float32.

Programs for GPUs often compute in float16, and on many processors the CPU's own kernels for it are
slow. So a device computes these operators in float32 and rounds the results. The second table shows
what the CPU takes in float16.
"""

import math

import torch
import torch.nn.functional as F
from harness import Table, Work, run
from torch import Tensor


def _works(device: str, dtype: torch.dtype) -> dict[str, Work]:
    def numbers(*shape: int) -> Tensor:
        return torch.linspace(-1, 1, math.prod(shape)).view(shape).to(device, dtype)

    def with_gradients(image: Tensor, weight: Tensor) -> Work:
        leaves = (image.requires_grad_(), weight.requires_grad_())
        return lambda: torch.autograd.grad(F.conv2d(*leaves, padding=1).sum(), leaves)

    matrix, batch = numbers(512, 512), numbers(4, 256, 256)
    heads = numbers(1, 8, 256, 64)
    image, weight = numbers(4, 16, 32, 32), numbers(16, 16, 3, 3)
    return {
        "product of matrices of 512 x 512": lambda: matrix @ matrix,
        "4 products of matrices of 256 x 256": lambda: torch.bmm(batch, batch),
        "linear layer, 512 to 512, batch 512": lambda: F.linear(matrix, matrix),
        "attention, 8 heads of 256 x 64": lambda: F.scaled_dot_product_attention(
            heads, heads, heads
        ),
        "convolution 3 x 3 of 4 x 16 x 32 x 32": lambda: F.conv2d(image, weight, padding=1),
        "the same with its gradients": with_gradients(image.clone(), weight.clone()),
    }


def main() -> None:
    """Print the tables."""
    reference = _works("cpu", torch.float32)
    tables = {
        "float16 on openreg / float32 on the CPU": (_works("openreg", torch.float16), 3.0),
        "float16 on the CPU / float32 on the CPU": (_works("cpu", torch.float16), None),
    }
    for title, (works, goal) in tables.items():
        table = Table(title, "operator")
        for name, work in works.items():
            table.measure(name, work, reference[name], turns=7, at_most=goal)


if __name__ == "__main__":
    run(main)
