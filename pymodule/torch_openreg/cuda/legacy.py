"""What a build with CUDA has in C++ behind names that a build without it has, too."""

import torch

from . import communication, nccl, sharing, storages, tensor_types


def install() -> None:
    """Put it there. To be called once, when PyTorch is whole."""
    torch.backends.cuda.is_built = lambda: True
    for part in (storages, sharing, communication, nccl, tensor_types):
        part.install()
