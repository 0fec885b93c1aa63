"""The subjects: every operator, module and optimizer that PyTorch's databases describe.

The name of a subject is its name in the database; a variant follows after a dot. Samples are made
on the CPU from a fixed seed. The latest samples are cached, because several checks in a row use the
same.
"""

import functools
import unittest
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as operators
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.opinfo.core import ForeachFuncInfo, OpInfo

SEED = 2024


def _call(function, *args, **kwargs):
    return function(*args, **kwargs)


# The database seeds before each call and restores the generator afterwards, which hides that an
# operator draws random numbers. Here every run is seeded anyway, and a draw must be visible.
operators.wrapper_set_seed = _call


@dataclass(frozen=True)
class Subject:
    kind: str  # "operator", "module" or "optimizer"
    name: str
    info: Any


def _operator_infos():
    return [
        *operators.op_db,
        *operators.foreach_unary_op_db,
        *operators.foreach_binary_op_db,
        *operators.foreach_pointwise_op_db,
        *operators.foreach_reduce_op_db,
        *operators.foreach_other_op_db,
    ]


@functools.lru_cache(maxsize=1)
def subjects():
    """Return all subjects by name, in the order of the databases."""
    listed = [Subject("operator", info.full_name, info) for info in _operator_infos()]
    listed += [Subject("module", info.name, info) for info in module_db]
    listed += [Subject("optimizer", info.name, info) for info in optim_db]
    named = {subject.name: subject for subject in listed}
    assert len(named) == len(listed), "two subjects have the same name"
    return named


def in_order(dtypes):
    return sorted(dtypes, key=str)


def _not_refused(info, dtypes, dtypes_of_cuda):
    """Return the dtypes without those that CUDA rejects, because a device rejects them too."""
    if not isinstance(info, OpInfo) or isinstance(info, ForeachFuncInfo):
        return set(dtypes)
    on_cuda = set(dtypes_of_cuda("cuda"))
    if torch.float16 in on_cuda:
        on_cuda.add(torch.bfloat16)  # which the database leaves out when it finds no GPU
    return set(dtypes) & on_cuda


def _supported_dtypes(info):
    on_cpu = info.supported_dtypes("cpu")
    return _not_refused(info, on_cpu, info.supported_dtypes)


def all_dtypes(info):
    """Return every dtype that both the CPU and CUDA support."""
    return in_order(_supported_dtypes(info))


def main_dtype(info):
    """Return one dtype, for checks that do not depend on it."""
    preferred = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool)
    supported = _supported_dtypes(info)
    return ([dtype for dtype in preferred if dtype in supported] or all_dtypes(info))[:1]


def graph_dtypes(info):
    return [d for d in main_dtype(info) if d == torch.float32]


def layout_dtypes(info):
    """Return a dtype of each kind and width, for checks that depend only on memory."""
    wanted = (torch.bool, torch.bfloat16, torch.int64, torch.float32, torch.complex64)
    return [d for d in all_dtypes(info) if d in wanted] or main_dtype(info)


def sparse_dtypes(info):
    """Return every dtype of an operator that accepts sparse tensors."""
    layouts = ("sparse", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
    takes = any(getattr(info, f"supports_{layout}") for layout in layouts)
    return all_dtypes(info) if takes else []


def gradient_dtypes(info):
    on_cpu = info.supported_backward_dtypes("cpu")
    return in_order(_not_refused(info, on_cpu, info.supported_backward_dtypes))


def double_dtypes(info):
    """Return the dtypes that PyTorch uses to check higher derivatives."""
    return [d for d in gradient_dtypes(info) if d in (torch.float64, torch.complex128)]


@functools.lru_cache(maxsize=2)
def _samples(name, dtype, requires_grad):
    torch.manual_seed(SEED)
    info = subjects()[name].info
    return list(info.sample_inputs("cpu", dtype, requires_grad=requires_grad))


def samples(subject, dtype, *, requires_grad=False):
    return _samples(subject.name, dtype, requires_grad)


def none_if_skipped(generate):
    """Return what a generator of the database yields; nothing if the generator raises a skip."""
    torch.manual_seed(SEED)
    try:
        return list(generate())
    except (unittest.SkipTest, NotImplementedError):
        return []


def describe(sample):
    """Describe a sample: the shapes of its tensors, and the other arguments."""

    def brief(value):
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(brief, value))}]"
        return repr(value)

    words = [brief(sample.input), *map(brief, sample.args)]
    words += [f"{key}={brief(value)}" for key, value in sample.kwargs.items()]
    text = ", ".join(words)
    return text if len(text) <= 120 else text[:117] + "..."
