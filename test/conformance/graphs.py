"""Graphs: each operator is captured while its arguments are zeros, and replayed on the sample's.

Captured means that nothing was done: so the arguments are zeros after it. What a replay makes of
the sample's values, with the generator where it would be, is what the CPU makes of them.
"""

import fnmatch

import torch
from torch.utils._pytree import tree_leaves

from .calls import calling, case
from .catalogue import samples
from .comparison import SEED
from .inputs import DEVICE

# Patterns of operators that cannot be captured, with the reason. CUDA cannot capture them either.
_BY_DATA = "what its results look like depends on data"
_READS = "it looks at values on the host, to refuse some or to return them"
_FROM_HOST = "it copies a number from pageable memory"
_SPARSE = "tensors made of others are never queued"
NOT_CAPTURED = {
    "argwhere": _BY_DATA,
    "combinations": _BY_DATA,
    "masked_select": _BY_DATA,
    "nonzero": _BY_DATA,
    "to_sparse": _BY_DATA,
    "unique": _BY_DATA,
    "unique_consecutive": _BY_DATA,
    "__getitem__": _BY_DATA,
    "nn.functional.ctc_loss": _BY_DATA,
    "linalg.lstsq*": _BY_DATA,
    "allclose": _READS,
    "cholesky": _READS,
    "corrcoef": _READS,
    "cov": _READS,
    "equal": _READS,
    "item": _READS,
    "linspace.tensor_overload": _READS,
    "logspace.tensor_overload": _READS,
    "narrow": _READS,
    "multinomial": _READS,
    "normal": _READS,
    "nn.functional.gaussian_nll_loss": _READS,
    "linalg.cholesky": _READS,
    "linalg.inv": _READS,
    "linalg.ldl_factor": _READS,
    "linalg.lu_factor": _READS,
    "linalg.solve": _READS,
    "linalg.tensorinv": _READS,
    "linalg.tensorsolve": _READS,
    "_segment_reduce.lengths": _READS,
    "masked.*": _FROM_HOST,
    "sparse.*": _SPARSE,
}


def is_not_captured(name):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in NOT_CAPTURED)


class _Memory:
    """Saves the bytes of the storages of tensors, and restores them."""

    def __init__(self, values):
        storages = {}
        for each in tree_leaves(values):
            if isinstance(each, torch.Tensor) and each.device == DEVICE:
                storage = each.untyped_storage()
                storages[storage.data_ptr()] = storage
        self._bytes = [
            torch.empty(0, dtype=torch.uint8, device=DEVICE).set_(each)
            for each in storages.values()
        ]
        self._kept = [each.clone() for each in self._bytes]

    def clear(self):
        for each in self._bytes:
            each.zero_()

    def is_clear(self):
        return not any(bool(each.any()) for each in self._bytes)

    def restore(self):
        for each, kept in zip(self._bytes, self._kept, strict=True):
            each.copy_(kept)


def captured(function, arguments):
    """Return the result of a replay of the function's graph on the arguments."""
    module = torch.get_device_module(DEVICE)
    memory = _Memory(arguments)
    memory.clear()
    graph = module.CUDAGraph()
    try:
        with module.graph(graph):
            result = function(arguments, DEVICE)
    except torch.AcceleratorError as error:  # that the capture is invalid: what made it so?
        raise error.__context__ or error from None
    assert memory.is_clear(), "the capture wrote to an argument"
    memory.restore()
    torch.manual_seed(SEED)
    graph.replay()
    torch.accelerator.synchronize()
    return result


def graphs(subject, dtype):
    if is_not_captured(subject.name):
        return

    def call(arguments, device):
        function = calling(subject.info.op)
        if device != DEVICE:
            return function(arguments, device)
        return captured(function, arguments)

    for sample in samples(subject, dtype)[:3]:
        yield case(subject, f"graph of {subject.name}", sample, call)
