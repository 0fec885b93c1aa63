"""Helpers for tests of symmetric memory, for the processes of a group."""

import functools

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from ranks import own_device

from device import module


def begin():
    module.set_device(own_device())


def world():
    return dist.group.WORLD.group_name


def met(*size, dtype=torch.float32, group=None):
    """Return a symmetric tensor after its rendezvous, and its handle."""
    tensor = symm_mem.empty(*size, dtype=dtype, device=own_device())
    return tensor, symm_mem.rendezvous(tensor, group or dist.group.WORLD)


def symmetric(value):
    """Return a copy of a value in symmetric memory, after the rendezvous."""
    tensor, _ = met(value.shape, dtype=value.dtype)
    return tensor.copy_(value)


def of_rank(rank, shape, dtype=torch.float32):
    """Return a rank's input on the CPU; all ranks compute the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def sum_of_all(shape, dtype=torch.float32):
    """Return the sum of all ranks' inputs, in their order, in float32, rounded once."""
    inputs = [of_rank(rank, shape, dtype).float() for rank in range(dist.get_world_size())]
    return functools.reduce(torch.add, inputs).to(dtype)


def failure(function, *arguments, **options):
    """Return the error of a call: the name of its type, and its first line."""
    try:
        function(*arguments, **options)
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]
    return None
