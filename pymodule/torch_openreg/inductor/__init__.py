"""What ``torch.compile`` needs of a device for its default backend, Inductor.

Inductor generates C++ for the CPU. That code runs on device memory as it is, when it is given
kernel addresses, so the devices share everything with the CPU's backend but three things, of which
each has a module here:

- `launches`: a generated kernel is launched on the stream of its tensors' device;
- `codegen`: generated Python calls such kernels and allocates on the right device;
- `cpu_patches`: where Inductor asks whether a device is "cpu" to choose among C++ and Triton, and for
  nothing else, a device answers yes.

`device` says what Inductor and Dynamo ask of a device itself, `fake` what a traced convolution's
result looks like; `cudagraph_trees` has what was compiled captured once and replayed. `graph_kernel` runs a graph as
one kernel: `packages` those that were compiled ahead of time, `cpp_wrapper` those that are to run
without Python.

Nothing of this is loaded before a program compiles something: `when_compiling` waits until Dynamo
and Inductor are imported.
"""

import functools
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_DYNAMO = "torch._dynamo.device_interface"
_INDUCTOR = "torch._inductor.compile_fx"
_TREES = "torch._inductor.cudagraph_trees"
_FLEX_ATTENTION = "torch.nn.attention.flex_attention"
_PACKAGES = "torch.export.pt2_archive._package"

# What fills a module, and what is done instead.
_Load = Callable[[ModuleType], None]
_Step = Callable[[ModuleType, _Load], None]


@functools.cache
def when_compiling(device_type: str) -> None:
    """Register with Dynamo and Inductor as soon as a program imports them.

    Once is enough: called again, it does nothing.

    Parameters
    ----------
    device_type : str
        What PyTorch calls the devices.
    """
    from torch_openreg.inductor import _register

    steps: dict[str, _Step] = {
        _DYNAMO: _after_loading(lambda: _register.with_dynamo(device_type)),
        _INDUCTOR: _after_loading(lambda: _register.with_inductor(device_type)),
        _PACKAGES: _after_loading(lambda: _register.with_packages(device_type)),
    }
    if device_type != "cuda":  # which PyTorch's file is about
        steps[_TREES] = lambda module, load: _register.with_trees(module, device_type)
        steps[_FLEX_ATTENTION] = _after_loading(lambda: _register.with_flex_attention(device_type))
    for name in [name for name in steps if name in sys.modules]:
        steps.pop(name)(sys.modules[name], lambda module: None)
    if steps:
        sys.meta_path.insert(0, _AtImport(steps))


def _after_loading(act: Callable[[], None]) -> _Step:
    def step(module: ModuleType, load: _Load) -> None:
        load(module)
        act()

    return step


class _AtImport:
    """Finds modules as Python does, and has a step load each."""

    def __init__(self, steps: dict[str, _Step]) -> None:
        self._steps = steps

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        step = self._steps.pop(name, None)
        if step is None:
            return None
        if not self._steps:
            sys.meta_path.remove(self)  # which has what is called
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: step(module, load)  # type: ignore[method-assign]
        return spec
