"""Errors have CUDA's messages, because programs search for them."""

import pytest
import torch
from torch import nn

ELSEWHERE = "Expected all tensors to be on the same device, but"


def here(*shape):
    return torch.zeros(shape, device="cuda:0")


def there(*shape):
    return torch.zeros(shape, device="cuda:1")


# A function, and the parts of CUDA's message: the argument, its device, the device of the others,
# and the function around CUDA's kernel.
NAMED = {
    "mm": (lambda: here(2, 2) @ torch.zeros(2, 2), "mat2", "cpu", "cuda:0", "mm"),
    "mm of two devices": (lambda: here(2, 2) @ there(2, 2), "mat2", "cuda:1", "cuda:0", "mm"),
    "linear": (lambda: nn.Linear(2, 2)(here(2, 2)), "mat1", "cuda:0", "cpu", "addmm"),
    "cat": (lambda: torch.cat([here(2), torch.zeros(2)]), "tensors", "cpu", "cuda:0", "cat"),
    "cross_entropy": (
        lambda: nn.functional.cross_entropy(here(2, 2), torch.zeros(2).long()),
        *("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    "gather": (
        lambda: here(2, 2).gather(0, torch.zeros(2, 2).long()),
        *("index", "cpu", "cuda:0", "gather"),
    ),
    "index_select": (
        lambda: here(2, 2).index_select(0, torch.zeros(2).long()),
        *("index", "cpu", "cuda:0", "_index_select"),
    ),
    "embedding": (
        lambda: nn.Embedding(2, 2).cuda()(torch.zeros(2).long()),
        *("index", "cpu", "cuda:0", "_index_select"),
    ),
    "layer_norm": (
        lambda: nn.LayerNorm(2)(here(2, 2)),
        *("weight", "cpu", "cuda:0", "_native_layer_norm"),
    ),
    "conv2d of two devices": (
        lambda: nn.functional.conv2d(here(1, 1, 2, 2), there(1, 1, 1, 1)),
        *("weight", "cuda:1", "cuda:0", "__slow_conv2d_forward"),
    ),
    "out=": (
        lambda: torch.mm(here(2, 2), torch.zeros(2, 2), out=here(2, 2)),
        *("mat2", "cpu", "cuda:0", "mm_out_out"),
    ),
    "overload": (
        lambda: torch.softmax(here(2), 0).scatter_(0, torch.zeros(2).long(), 1.0),
        *("index", "cpu", "cuda:0", "scatter__value"),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_argument_elsewhere_is_named(name):
    run, argument, place, common, method = NAMED[name]
    with pytest.raises(RuntimeError) as raised:
        run()
    assert str(raised.value) == (
        f"{ELSEWHERE} got {argument} is on {place}, different from other tensors on {common} "
        f"(when checking argument in method wrapper_CUDA_{method})"
    )


@pytest.mark.parametrize(
    "run",
    [lambda: here(2) + torch.zeros(2), lambda: torch.zeros(2) + here(2)],
    ids=["first", "second"],
)
def test_pointwise_operators_name_the_device_first(run):
    with pytest.raises(RuntimeError) as raised:
        run()
    assert str(raised.value) == f"{ELSEWHERE} found at least two devices, cuda:0 and cpu!"


CONVOLVED = {
    "input": (torch.zeros(1, 1, 2, 2), here, "torch.FloatTensor", "torch.cuda.FloatTensor"),
    "weight": (None, torch.zeros, "torch.cuda.FloatTensor", "torch.FloatTensor"),
    "dtype": (
        None,
        lambda *shape: here(*shape).half(),
        *("torch.cuda.FloatTensor", "torch.cuda.HalfTensor"),
    ),
}


@pytest.mark.parametrize("name", CONVOLVED)
@pytest.mark.parametrize("argument", ["weight", "bias"])
def test_convolution_names_types(name, argument):
    if (name, argument) == ("dtype", "bias"):
        pytest.skip("refused before any device is asked, in other words")
    x, make, first, second = CONVOLVED[name]
    x = here(1, 1, 2, 2) if x is None else x
    arguments = {"weight": make(1, 1, 1, 1)}
    if argument == "bias":
        arguments = {"weight": torch.zeros(1, 1, 1, 1).to(x), "bias": make(1)}
    with pytest.raises(RuntimeError) as raised:
        nn.functional.conv2d(x, **arguments)
    assert str(raised.value) == (
        f"Input type ({first}) and {argument} type ({second}) should be the same"
    )


def test_wait_that_is_watched_for_is_cudas():
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
            here(1).item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_event_that_cannot_be_sent_says_which_can():
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.Event\(interprocess=True\)"):
        torch.cuda.Event(enable_timing=True).ipc_handle()


IN_CHILD = """
import os, sys, torch
torch.zeros(1, device="cuda")
child = os.fork()
if child == 0:
    try:
        {}
    except RuntimeError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.own_processes
@pytest.mark.parametrize(
    "code",
    [
        "torch.zeros(1, device='cuda')",
        "torch.zeros(1).cuda()",
        "torch.cuda.set_device(1)",
        "torch.cuda.current_device()",
        "torch.cuda.synchronize()",
        "torch.cuda.Stream()",
        "torch.Stream('cuda')",
        "torch.cuda.get_rng_state()",
    ],
)
def test_forked_child_has_no_devices(python, code):
    assert python(IN_CHILD.format(code)).stdout == (
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' start method\n"
    )
