"""Enlarge samples of PyTorch's database, whose tensors have some hundred bytes."""

import torch
from torch.utils._pytree import tree_leaves
from torch_openreg import _C

from .catalogue import SEED


def _tensors(sample):
    values = tree_leaves((sample.input, sample.args, sample.kwargs))
    return [each for each in values if isinstance(each, torch.Tensor)]


def _along(dimension, length, times):
    """Return a function that repeats tensors with so many elements along a dimension."""

    def change(value):
        if not isinstance(value, torch.Tensor) or value.dim() <= dimension % 99:
            return value
        if value.shape[dimension] != length or value.layout != torch.strided:
            return value
        repeats = [1] * value.dim()
        repeats[dimension] = times
        larger = value.detach().repeat(repeats)
        return larger.requires_grad_(value.requires_grad)

    return change


def _batched(times):
    """Return a function that gives tensors another dimension in front."""

    def change(value):
        if not isinstance(value, torch.Tensor) or value.dim() == 0 or value.is_nested:
            return value
        larger = value.detach().expand(times, *value.shape).contiguous()
        return larger.requires_grad_(value.requires_grad)

    return change


# Results have at most so many bytes. An outer product of large vectors has more.
_LARGEST_RESULT = 64 << 20


def _has_large_results(function, sample):
    def to_meta(value):
        return value.detach().to("meta") if isinstance(value, torch.Tensor) else value

    try:
        on_meta = sample.transform(to_meta)
        results = tree_leaves(function(on_meta.input, *on_meta.args, **on_meta.kwargs))
    except Exception:
        return False  # nobody can say it without running it
    return any(isinstance(each, torch.Tensor) and each.nbytes > _LARGEST_RESULT for each in results)


def enlarge(function, sample, size):
    """Return a sample whose largest tensor has at least so many bytes, or None.

    Tensors are repeated along the first or the last dimension of the largest one, or get another
    dimension. The first change is taken that the operator accepts on the host. Its kernels run in a
    dry run, too.
    """
    return _C.call_in_known_scope(_enlarge, function, sample, size)


def _enlarge(function, sample, size):
    tensors = [each for each in _tensors(sample) if each.layout == torch.strided]
    largest = max(tensors, key=lambda each: each.nbytes, default=None)
    if largest is None or largest.dim() == 0 or largest.numel() == 0:
        return None
    times = -(-size // largest.nbytes)
    changes = [_along(0, largest.shape[0], times), _batched(times)]
    if largest.dim() > 1:
        changes.insert(1, _along(largest.dim() - 1, largest.shape[-1], times))
    for change in changes:
        torch.manual_seed(SEED)
        try:
            larger = sample.transform(change)
            if _has_large_results(function, larger):
                continue
            function(larger.input, *larger.args, **larger.kwargs)
        except Exception:
            continue
        return larger
    return None
