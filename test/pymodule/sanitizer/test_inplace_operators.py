"""In-place operators on unwritten memory: the sanitizer reports those that compute with it.

The operators and their arguments come from PyTorch's operator database. The CPU is the reference:
each operator runs there on several contents of `self`. An element of the result that is always the
old one was kept. An element that is the same for all contents was overwritten. If there is any
other element, the operator computed with the old content.
"""

import pytest
import torch
import torch_openreg._C as C
from torch.testing._internal.common_methods_invocations import op_db

from device import DEVICE, module

# What these return does not depend on the contents that are tried here, though they read them.
READ_WITHOUT_EFFECT = {
    "conj_physical",  # real numbers
    "eq",  # never equal to the other tensor
    "logical_or",  # the other operand is never zero
    "ne",
}
# These change the shape or the strides of the tensor, and read no element.
VIEWS = {"as_strided", "resize_", "resize_as_", "squeeze", "t", "transpose", "unsqueeze"}
# For some arguments these read no element of `self`, or compute with none.
BY_INDEX = {
    "index_add",
    "index_put",
    "index_reduce",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
}


def contents(like):
    """Return tensors of a shape and dtype, with contents that differ in each element."""
    generator = torch.Generator().manual_seed(0)
    if not like.dtype.is_floating_point:
        return [
            torch.randint(low, low + 50, like.shape, generator=generator).to(like.dtype)
            for low in (1, 60)
        ]
    numbers = [torch.randn(like.shape, generator=generator) * scale for scale in (1, 0.5, 2000)]
    special = torch.tensor([0.0, float("nan"), float("inf"), -1.0])
    chosen = torch.randint(len(special), like.shape, generator=generator)
    return [*(each.to(like.dtype) for each in numbers), torch.zeros_like(like), special[chosen]]


def on(device, value):
    """Return a copy of arguments with all tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    if isinstance(value, list | tuple):
        return type(value)(on(device, each) for each in value)
    if isinstance(value, dict):
        return {name: on(device, each) for name, each in value.items()}
    return value


def are_same(one, other):
    return (one == other) | (one.isnan() & other.isnan())


def computes_on_cpu(operator, sample):
    """Return whether the operator computes with the content of `self`; None: it raises.

    None also stands for an operator that changes the shape of `self`.
    """
    befores = contents(sample.input)
    afters = []
    for before in befores:
        after = before.clone()
        torch.manual_seed(0)
        try:
            operator(after, *on("cpu", sample.args), **on("cpu", sample.kwargs))
        except RuntimeError:
            return None
        if after.shape != before.shape:
            return None
        afters.append(after)
    kept = torch.ones(sample.input.shape, dtype=torch.bool)
    overwritten = kept.clone()
    for before, after in zip(befores, afters, strict=True):
        kept &= are_same(before, after)
        overwritten &= are_same(afters[0], after)
    return bool((~kept & ~overwritten).any())


def is_found(operator, sample):
    """Return whether the sanitizer reports the operator on unwritten memory; None: it raises."""
    args, kwargs = on(DEVICE, sample.args), on(DEVICE, sample.kwargs)
    C.sanitizer_start(lambda finding: None, ["uninitialised read"], False)
    try:
        unwritten = torch.empty(sample.input.shape, dtype=sample.input.dtype, device=DEVICE)
        operator(unwritten, *args, **kwargs)
        module.synchronize()
        return bool(C.sanitizer_findings())
    except RuntimeError:
        return None
    finally:
        C.sanitizer_stop()


def judge_samples(info):
    """Return (computes on the CPU, is found) of each sample that works."""
    dtype = torch.float32 if torch.float32 in info.dtypes else torch.int64
    verdicts = []
    for sample in info.sample_inputs("cpu", dtype):
        if not isinstance(sample.input, torch.Tensor) or sample.input.numel() == 0:
            continue
        if sample.kwargs.get("alpha") == 0:  # adds zeros
            continue
        computes = computes_on_cpu(info.inplace_variant, sample)
        found = None if computes is None else is_found(info.inplace_variant, sample)
        if found is not None:
            verdicts.append((computes, found))
    return verdicts


INPLACE = [
    info
    for info in op_db
    if info.inplace_variant is not None
    and info.name not in VIEWS
    and info.dtypes & {torch.float32, torch.int64}
]


@pytest.mark.parametrize("info", INPLACE, ids=lambda info: info.formatted_name)
@pytest.mark.filterwarnings("ignore")
def test_inplace_operator_on_unwritten_memory(info):
    verdicts = judge_samples(info)
    assert (True, False) not in verdicts, "computes with unwritten memory, and is not reported"
    if info.name in BY_INDEX:
        assert (False, True) not in verdicts, "is reported, and does not compute with it"
    elif info.name not in READ_WITHOUT_EFFECT and any(found for _, found in verdicts):
        assert any(computes for computes, _ in verdicts), "is reported, and never computes with it"


def test_most_inplace_operators_have_samples():
    assert len(INPLACE) > 100
    verdicts = {info.name: judge_samples(info) for info in INPLACE if info.name in BY_INDEX}
    assert verdicts.keys() == BY_INDEX
    assert all((True, True) in each for each in verdicts.values())
