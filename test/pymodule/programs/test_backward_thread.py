"""Which backwards run on the calling thread: those where a program cannot tell the difference."""

import contextlib
import json
import subprocess
import sys
import threading

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from torch_openreg import _C

from device import DEVICE, module


@pytest.fixture
def x():
    return torch.ones(4, device=DEVICE, requires_grad=True)


def loss_of(x):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4))
    return torch.nn.functional.mse_loss(model.to(DEVICE)(x[None]), torch.zeros(1, 4, device=DEVICE))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def with_hook(x):
    y = x * 2
    y.register_hook(lambda gradient: None)
    return y.sum()


def with_hook_of_a_leaf(x):
    x.register_hook(lambda gradient: None)
    return (x * 2).sum()


def with_hook_after_accumulation(x):
    x.register_post_accumulate_grad_hook(lambda tensor: None)
    return (x * 2).sum()


def with_hook_before_a_node(x):
    y = x * 2
    y.grad_fn.register_prehook(lambda gradients: None)
    return y.sum()


def with_hook_after_a_node(x):
    y = x * 2
    y.grad_fn.register_hook(lambda inputs, outputs: None)
    return y.sum()


def with_several_devices(x):
    return (x.to(f"{DEVICE}:1") * 2).sum()


def with_subclass(x):
    from torch.testing._internal.two_tensor import TwoTensor

    y = torch.ones(4, device=DEVICE)
    return (TwoTensor(x, y.requires_grad_()) * 2).sum()


def large(x):
    for _ in range(1001):
        x = x + 1
    return x.sum()


@pytest.mark.parametrize(
    "graph",
    [
        lambda x: Double.apply(x).sum(),
        with_hook,
        with_hook_of_a_leaf,
        with_hook_after_accumulation,
        with_hook_before_a_node,
        with_hook_after_a_node,
        with_several_devices,
        with_subclass,
        large,
    ],
)
def test_graphs_that_need_the_thread_of_the_device(x, graph):
    root = graph(x)
    assert not _C.may_use_calling_thread((root,))
    assert not _C.may_use_calling_thread((loss_of(x), root))


@pytest.mark.parametrize(
    "graph",
    [
        loss_of,
        lambda x: torch.cat([x, x]).split(3)[0].sum().sqrt().cpu() * 2,
        lambda x: torch.nn.LSTM(4, 4).to(DEVICE)(x[None])[0].sum(),
    ],
)
def test_graphs_of_pytorch_alone(x, graph):
    assert _C.may_use_calling_thread((graph(x),))


def test_a_compiled_function_needs_no_thread(x):
    compiled = torch.compile(lambda x: (x.sin() * x).sum(), backend="aot_eager")
    root = compiled(x)
    assert "CompiledFunction" in root.grad_fn.name()
    assert _C.may_use_calling_thread((root,))


def test_a_graph_of_the_cpu_is_left_alone():
    assert not _C.may_use_calling_thread(((torch.ones(3, requires_grad=True) * 2).sum(),))


def test_an_edge_is_left_to_the_thread_of_the_device(x):
    edge = torch.autograd.graph.get_gradient_edge(loss_of(x))
    assert not _C.may_use_calling_thread((edge,))


@contextlib.contextmanager
def recorded_memory():
    module.memory._record_memory_history()
    try:
        yield
    finally:
        module.memory._record_memory_history(enabled=None)


@pytest.mark.parametrize(
    "context",
    [
        torch.profiler.profile,
        torch.autograd.detect_anomaly,
        lambda: FlopCounterMode(display=False),
        lambda: module.use_mem_pool(module.MemPool()),
        recorded_memory,
    ],
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_observers_see_the_thread_of_the_device(x, context):
    root = loss_of(x)
    assert _C.may_use_calling_thread((root,))
    with context():
        assert not _C.may_use_calling_thread((root,))
    assert _C.may_use_calling_thread((root,))


def test_a_capture_sees_the_thread_of_the_device(x):
    loss_of(x).backward()
    x.grad = None
    module.synchronize()
    with module.graph(module.CUDAGraph(), capture_error_mode="relaxed"):
        root = (x * 2).sum()
        assert not _C.may_use_calling_thread((root,))


PROGRAM = """
import json, sys, threading
import torch
from device import DEVICE, module

changes = []  # one for the calling thread and one back, for each backward that it computes
change = torch._C._set_multithreading_enabled

def changed(enabled):
    changes.append(enabled)
    change(enabled)

torch._C._set_multithreading_enabled = changed

x = torch.arange(4.0, device=DEVICE, requires_grad=True)
found = []

def step():
    (x * x).sum().backward()
    found.append(changes.copy())
    changes.clear()

step()
thread = threading.Thread(target=step)
thread.start()
thread.join()
if sys.argv[1] == "default":
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        y = (x * x).sum()
    y.backward()
elif sys.argv[1] == "one":
    y = (x * x).sum()
    y.grad_fn.next_functions[0][0]._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    y.backward()
found.append(changes)
assert x.grad.tolist() == [0, 6, 12, 18]
print(json.dumps(found))
"""


@pytest.mark.parametrize("hooks", ["default", "one"])
def test_a_backward_uses_the_calling_thread_until_there_are_hooks(own_group, hooks):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, hooks], env=own_group(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [[False, True], [False, True], []]


def test_backwards_of_several_threads_at_once():
    """Gradients of a shared leaf are added, whichever thread computes them."""
    weight = torch.zeros(64, device=DEVICE, requires_grad=True)
    barrier = threading.Barrier(4)

    def run(number):
        barrier.wait()
        for _ in range(20):
            (weight * number).sum().backward()
        module.synchronize()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert weight.grad.eq(20 * 10).all()


def test_a_second_backward_is_refused_as_always(x):
    """Nodes of a graph that was used have released their tensors."""
    y = x.exp()
    root = y.sum()
    torch.autograd.grad(root, x, retain_graph=True)
    assert _C.may_use_calling_thread((root,))
    torch.autograd.grad(root, x)
    for again in (root, (y * 2).sum()):
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            again.backward()
