"""Tensors on several devices are refused in the words of PyTorch's CUDA build, which the planner
tells.

The calls are those of test/fixtures/operators-*. One tensor of each is moved to the host.
"""

import collections

import pytest
import torch
from modes import cuda_only
from recorded_calls import RECORDS, as_signature, load_answers, settings_of
from torch_openreg._releases import RELEASE
from torch_openreg.plans.client import Client

pytestmark = [
    cuda_only("the words"),
    pytest.mark.skipif(RELEASE != (2, 13), reason="the exceptions are those of 2.13"),
]

LARGEST_BYTES = 100_000
CALLS = 2  # of each operator

# Operators that may use cuDNN, or that no program calls itself, or that another operator makes up
# here. Those of cuDNN and MIOpen are left out, too.
OTHERWISE = {
    *("convolution", "mv", "mm.out", "_chunk_cat"),
    *("_ctc_loss", "huber_loss_backward", "smooth_l1_loss_backward"),
    *("_efficient_attention_backward", "_scaled_dot_product_efficient_attention_backward"),
    *("_scaled_dot_product_efficient_attention", "_native_batch_norm_legit"),
    *("_batch_norm_with_update", "normal.Tensor_Tensor", "masked_fill.Tensor"),
}


def places_of(value, place=()):
    """Yield where the tensors of a signature are."""
    if isinstance(value, tuple) and value[0] == "tensor":
        yield place
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from places_of(each, (*place, i))


def at(value, place):
    return at(value[place[0]], place[1:]) if place else value


def on_host(value, place):
    """Return a copy of a signature with one tensor on the host."""
    if not place:
        return (*value[:7], "h")
    copy = list(value)
    copy[place[0]] = on_host(copy[place[0]], place[1:])
    return copy


def make(value):
    """Make an argument. Integers are zero, which any index may be."""
    if isinstance(value, list):
        return [make(each) for each in value]
    if not isinstance(value, tuple):
        return value
    kind, *rest = value
    if kind == "device":
        return torch.device(rest[0])
    if kind != "tensor":
        return getattr(torch, rest[0])
    dtype, sizes, strides, offset, _, nbytes, flags = rest
    dtype = getattr(torch, dtype)
    base = torch.zeros(
        nbytes // dtype.itemsize, dtype=dtype, device="cpu" if "h" in flags else "cuda"
    )
    return base.as_strided(sizes, strides, offset)


def has_repeated(value):
    if isinstance(value, list):
        return any(map(has_repeated, value))
    return isinstance(value, tuple) and value[0] == "again"


def questions():
    """Yield calls with one tensor on the host."""
    count = collections.Counter()
    for answer in load_answers(RECORDS[0]):
        name = answer["operator"]
        given = [as_signature(each) for each in answer["arguments"]]
        places = [place for place in places_of(given) if at(given, place)[2]]
        tensors = [at(given, place) for place in places]
        is_small = all(0 not in each[2] and each[6] <= LARGEST_BYTES for each in tensors)
        base = name.removeprefix("aten::")
        if "cudnn" in base or "miopen" in base:
            continue
        if count[name] < CALLS and len(places) > 1 and is_small and base not in OTHERWISE:
            named = {key: as_signature(each) for key, each in answer["keywords"].items()}
            if has_repeated([*given, *named.values()]):
                continue
            count[name] += 1
            settings = settings_of(answer)
            for place in places:
                yield name, on_host(given, place), named, settings


def message_of(name, given, named):
    operator, _, overload = name.removeprefix("aten::").partition(".")
    try:
        function = getattr(getattr(torch.ops.aten, operator), overload or "default")
        function(*make(given), **{key: make(each) for key, each in named.items()})
        torch.cuda.synchronize()
    except Exception as error:
        return str(error).split("\n")[0]
    return None


def test_tensors_on_the_host_are_refused_as_by_the_cuda_build(build):
    planner = Client(["h100"])
    compared, different = 0, []
    for name, given, named, settings in questions():
        plan = planner.ask((name, given, named, settings, "h100"))
        if plan is not None:
            expected = plan.error[1].split("\n")[0] if plan.error else None
            found = message_of(name, given, named)
            if found != expected:
                different.append((name, expected, found))
            compared += 1
    planner.end()
    assert different == []
    assert compared > 1000
