"""OPENREG_AUTOGRAD_THREADS: the thread on which backward runs, for all threads of a program."""

import json
import subprocess
import sys

import pytest
import torch

from device import DEVICE, module

PROGRAM = """
import json, threading
import torch
from device import DEVICE, module

def where_backward_runs(device, again=False):
    seen = []
    x = torch.arange(4.0, device=device, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(threading.get_ident()))
    if again:  # from within a backward
        y = torch.ones(2, device=device, requires_grad=True)
        square = (x * x).sum()
        y.register_hook(lambda gradient: square.backward())
        y.sum().backward()
    else:
        (x * x).sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 6]
    return ["calling" if thread == threading.get_ident() else "other" for thread in seen]

found = {}
def look(name):
    found[name] = [
        where_backward_runs(f"{DEVICE}:0"),
        where_backward_runs(f"{DEVICE}:1"),
        where_backward_runs(f"{DEVICE}:1", again=True),
    ]

look("main")
thread = threading.Thread(target=look, args=("thread",))
thread.start()
thread.join()

# Work of several devices and streams, gradients of gradients, and what is on its way is kept.
x = torch.ones(3, device=f"{DEVICE}:0", requires_grad=True)
stream = module.Stream()
stream.wait_stream(module.current_stream())
with module.stream(stream):
    y = (x.to(f"{DEVICE}:1") ** 3).sum()
gradient, = torch.autograd.grad(y, x, create_graph=True)
gradient.sum().backward()
module.synchronize()
found["second"] = x.grad.tolist()

class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        raise KeyError("no gradient")

try:
    Refuses.apply(x).sum().backward()
except KeyError as error:
    found["error"] = str(error)
found["enabled"] = torch._C._is_multithreading_enabled()
print(json.dumps(found))
"""


@pytest.fixture
def run(own_group):
    """Return a function that runs the program with a value of the variable."""

    def run(value):
        environment = own_group() | {"OPENREG_AUTOGRAD_THREADS": value}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize(("value", "thread"), [("0", "calling"), ("1", "other"), ("", "other")])
def test_backward_runs_on_the_configured_thread(run, value, thread):
    result = run(value)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "main": [[thread]] * 3,
        "thread": [[thread]] * 3,
        "second": [6, 6, 6],
        "error": "'no gradient'",
        "enabled": True,
    }


def test_any_other_value_is_reported(run):
    result = run("2")
    assert "OPENREG_AUTOGRAD_THREADS=2: expected 0 or 1" in result.stderr


def test_engine_of_the_calling_thread_leaves_a_thread_as_it_was():
    from torch_openreg._autograd import CallingThreadEngine

    engine = CallingThreadEngine()
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = (x * 3).sum()
    with torch.autograd.set_multithreading_enabled(False):
        engine.run_backward(
            (y,),
            (torch.ones_like(y),),
            False,
            False,
            (),
            allow_unreachable=True,
            accumulate_grad=True,
        )
        assert not torch._C._is_multithreading_enabled()
    module.synchronize()
    assert x.grad.tolist() == [3, 3]
