"""Attention chooses CUDA's kernel and takes its memory, as PyTorch's CUDA build says."""

import gc
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch_openreg.plans import launches
from torch_openreg.plans.ask import plan

from device import DEVICE, module

CHOICES = Path(__file__).with_name("attention_choices.py")


@pytest.fixture
def planner(build):
    launches.use("planner")
    yield
    launches.use("none")


def test_the_choice_is_that_of_the_cuda_build(build, python):
    code = f"import runpy; runpy.run_path({str(CHOICES)!r})"
    result = python(code, OPENREG_PROFILE="h100,a100,t4,l40s", OPENREG_DEVICE_COUNT="4")
    assert int(result.stdout) == 4 * 2016


# ---- memory -------------------------------------------------------------------------------------

HALF, SINGLE = torch.bfloat16, torch.float32
# The dtype, the heads of query and key, and the options. The lengths make each signature new.
CALLS = {
    "flash": (HALF, (4, 4), {}),
    "flash, causal": (HALF, (4, 4), {"is_causal": True}),
    "flash, shared heads": (HALF, (8, 2), {"enable_gqa": True}),
    "flash, dropout": (HALF, (4, 4), {"dropout_p": 0.1}),
    "flash, few heads": (HALF, (1, 1), {}),
    "efficient": (SINGLE, (4, 4), {}),
    "efficient, causal": (SINGLE, (4, 4), {"is_causal": True}),
    "efficient, dropout": (SINGLE, (4, 4), {"dropout_p": 0.1}),
}


def bytes_of(block):
    return -(-block // 512) * 512


def figures_of(events):
    """Return the blocks that are taken, and the peak, both rounded as the allocator does."""
    taken = [event for event in events if event > 0]
    held = peak = 0
    for event in events:
        held += bytes_of(event) if event > 0 else -bytes_of(taken[-event - 1])
        peak = max(peak, held)
    return len(taken), peak


def measured(work):
    """Return the same figures for work. Garbage must not be freed in the middle of it."""
    gc.collect()
    module.synchronize()
    before, base = module.memory_stats()["allocation.all.allocated"], module.memory_allocated()
    module.reset_peak_memory_stats()
    result = work()
    module.synchronize()
    after = module.memory_stats()["allocation.all.allocated"]
    return result, (after - before, module.max_memory_allocated() - base)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_swapped", [False, True], ids=["heads first", "length first"])
def test_attention_takes_the_memory_that_cuda_takes(planner, name, is_swapped):
    dtype, heads, options = CALLS[name]
    length = 256 + 8 * list(CALLS).index(name)
    shapes = [(2, length, each, 64) if is_swapped else (2, each, length, 64) for each in heads]
    leaves = [torch.rand(shapes[i > 0], device=DEVICE).to(dtype).requires_grad_() for i in range(3)]
    tensors = [leaf.transpose(1, 2) if is_swapped else leaf for leaf in leaves]
    dropout, is_causal = options.get("dropout_p", 0.0), options.get("is_causal", False)
    if dtype == HALF:
        operator, more = "aten::_scaled_dot_product_flash_attention", [dropout, is_causal]
    else:
        operator, more = (
            "aten::_scaled_dot_product_efficient_attention",
            [None, True, dropout, is_causal],
        )
    planned = plan(operator, [*tensors, *more])
    for _ in range(2):  # learned, and known
        output, found = measured(lambda: F.scaled_dot_product_attention(*tensors, **options))
        assert found == figures_of(planned.events)
    assert output.stride() == planned.outputs[0].strides
    gradient = torch.rand_like(output)
    saved = planned.outputs[1]
    logsumexp = torch.empty(saved.sizes, dtype=torch.float32, device=DEVICE)
    if dtype == HALF:
        state = [torch.empty(each, dtype=torch.uint64, device=DEVICE) for each in ((2,), ())]
        more = [output, logsumexp, None, None, length, length, dropout, is_causal, *state]
        before = [gradient, *tensors]
    else:
        state = [torch.zeros((), dtype=torch.int64)] * 2
        more = [None, output, logsumexp, *state, dropout, [True] * 3 + [False], is_causal]
        before = [gradient, *tensors]
    planned = plan(f"{operator}_backward", [*before, *more])
    gradients, found = measured(
        lambda: torch.autograd.grad(output, tensors, gradient, retain_graph=True)
    )
    assert found == figures_of(planned.events)
    for each, expected in zip(gradients, planned.outputs, strict=False):
        assert each.stride() == expected.strides


@pytest.mark.parametrize("name", ["flash", "efficient"])
def test_packed_sequences_take_the_memory_that_cuda_takes(planner, name):
    starts = torch.tensor([0, 200, 500, 700], dtype=torch.int32, device=DEVICE)
    more = [starts, starts, 300, 300, 0.0]
    if name == "flash":
        shape, dtype = (700, 4, 64), HALF
        more += [True, False]
    else:
        shape, dtype = (1, 700, 4, 64), SINGLE
        more = [None, *more, 1, True]
    forward = getattr(torch.ops.aten, f"_{name}_attention_forward")
    backward = getattr(torch.ops.aten, f"_{name}_attention_backward")
    tensors = [torch.rand(shape, device=DEVICE).to(dtype) for _ in range(3)]
    planned = plan(f"aten::_{name}_attention_forward", [*tensors, *more])
    for _ in range(2):  # learned, and known
        results, found = measured(lambda: forward(*tensors, *more))
        assert found == figures_of(planned.events)
    for result, expected in zip(results[:2], planned.outputs, strict=False):
        assert (result.shape, result.stride()) == (expected.sizes, expected.strides)
    output, logsumexp, *positions = results[:4]
    gradient = torch.rand_like(output)
    if name == "flash":
        saved = [output, logsumexp, starts, starts, 300, 300, 0.0, True, *positions]
    else:
        saved = [None, output, starts, starts, 300, 300, logsumexp, 0.0, *positions, 1, False]
    planned = plan(f"aten::_{name}_attention_backward", [gradient, *tensors, *saved])
    _, found = measured(lambda: backward(gradient, *tensors, *saved))
    assert found == figures_of(planned.events)
