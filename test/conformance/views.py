"""What shares memory on the CPU shares it on a device, and what does not, does not."""

import torch
from torch.utils._pytree import tree_leaves

from .calls import case, invoke
from .catalogue import samples


def _strided(value):
    return [
        each
        for each in tree_leaves(value)
        if isinstance(each, torch.Tensor) and each.layout == torch.strided and not each.is_nested
    ]


def _memory(tensor):
    return tensor.untyped_storage()._cdata


def _alias(tensor, others):
    """Which of the others a tensor shares memory with, and what autograd knows of it."""
    return {
        "shares memory with": [i for i, o in enumerate(others) if _memory(o) == _memory(tensor)],
        "is": [i for i, other in enumerate(others) if other is tensor],
        "is a view": tensor._is_view(),
        "views": [i for i, other in enumerate(others) if tensor._base is other],
        "bytes of memory": tensor.untyped_storage().nbytes(),
    }


def views(subject, dtype):
    """The pattern of aliases among arguments and results; then a write through each alias."""

    def call(arguments, device):
        given = _strided(arguments)
        result = invoke(subject.info.op, arguments)
        results = _strided(result)
        aliases = [_alias(each, given + results[:i]) for i, each in enumerate(results)]
        errors = []
        with torch.no_grad():
            for each, alias in zip(results, aliases, strict=True):
                if alias["shares memory with"]:
                    try:
                        each.add_(1) if each.dtype != torch.bool else each.logical_not_()
                    except RuntimeError as error:  # expanded memory cannot be written to
                        errors.append(type(error).__name__)
        return aliases, errors

    for sample in samples(subject, dtype):
        yield case(subject, f"aliases of {subject.name}", sample, call)
